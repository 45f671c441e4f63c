"""Numba."""

from __future__ import annotations

import pytest

pytest.importorskip("numba", reason="Numba is not installed")

from tests.peers.conformance import Conformance
from tests.peers.other_pipelines import NUMBA as EXAMPLES

__all__ = ["EXAMPLES"]


class TestNumba(Conformance):
    """Every example of `other_pipelines` that belongs to it."""
