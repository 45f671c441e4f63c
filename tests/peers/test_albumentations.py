"""Albumentations, or AlbumentationsX in its place."""

from __future__ import annotations

import pytest

pytest.importorskip("albumentations", reason="Albumentations is not installed (the extra `peers`)")

from tests.peers.albumentations_pipelines import EXAMPLES
from tests.peers.conformance import Conformance

__all__ = ["EXAMPLES"]


class TestAlbumentations(Conformance):
    """Every example of `albumentations_pipelines`."""
