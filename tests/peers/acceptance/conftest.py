"""The fixtures of these tests."""

from __future__ import annotations

from tests.support.augmenters import make, mark, script, start_method

__all__ = ["make", "mark", "script", "start_method"]
