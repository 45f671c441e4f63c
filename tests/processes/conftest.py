"""The fixtures of these tests."""

from __future__ import annotations

from tests.support.augmenters import make, mark, no_seed_from_outside, script, start_method

__all__ = ["make", "mark", "no_seed_from_outside", "script", "start_method"]
