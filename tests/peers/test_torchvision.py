"""Torchvision."""

from __future__ import annotations

import pytest

pytest.importorskip("torchvision", reason="Torchvision is not installed")

from tests.peers.conformance import Conformance
from tests.peers.other_pipelines import TORCHVISION as EXAMPLES

__all__ = ["EXAMPLES"]


class TestTorchvision(Conformance):
    """Every example of `other_pipelines` that belongs to it."""
