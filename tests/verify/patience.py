"""Faults of timing, on a machine that is busy with other things."""

from __future__ import annotations

from collections.abc import Callable


def within_three_tries(check: Callable[[], None]) -> None:
    """A busy machine moves clocks and threads by itself, and then verify says only that: it wants to be run again."""
    for _ in range(2):
        try:
            return check()
        except AssertionError:
            continue
    return check()
