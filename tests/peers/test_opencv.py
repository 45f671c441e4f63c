"""OpenCV."""

from __future__ import annotations

import pytest

pytest.importorskip("cv2", reason="OpenCV is not installed")

from tests.peers.conformance import Conformance
from tests.peers.other_pipelines import OPENCV as EXAMPLES

__all__ = ["EXAMPLES"]


class TestOpenCV(Conformance):
    """Every example of `other_pipelines` that belongs to it."""
