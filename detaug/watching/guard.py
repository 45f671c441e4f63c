"""The cheap check at run time: finds the lines that draw unseeded random numbers while a batch is made.

It replaces the functions that ask the system for random numbers, and costs nothing elsewhere. It notices seeding by the
time of day in the functions that seed. `detaug.verify` finds the rest.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from detaug.watching.interception import Site, Substitution, caller_of_randomness, direct_caller
from detaug.watching.randomness import seeding_watched, substitutes

#: How far (seconds) from now a number may be and still be taken for the time of day.
_NOW = 10.0
_UNITS = (1.0, 1e3, 1e6, 1e9)


class Guard:
    """Reports each line that draws unseeded random numbers once.

    Args:
        report: called with a sentence that names ``file:line``.
    """

    def __init__(self, report: Callable[[str], None]) -> None:
        self._report = report
        self._reported: set[Site] = set()
        self._thread = 0
        found = substitutes(self._asked, self._seeded)
        self._substitution = Substitution(list(found))
        self._substitutes = list(found.values())

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Reports such lines of this thread inside the block."""
        self._thread = threading.get_ident()
        with seeding_watched(self._asked, self._seeded), self._substitution.by(self._substitutes):
            yield

    def _asked(self, function: str, size: int, frame: FrameType) -> None:
        site = caller_of_randomness(frame)
        self._notice(site, "draws random numbers from the operating system, which no seed governs,")

    def _seeded(self, seed: Any, frame: FrameType) -> None:
        if isinstance(seed, (int, float)) and is_the_time(seed):
            self._notice(direct_caller(frame), "seeds a random generator by the time of day")

    def _notice(self, site: Site | None, what: str) -> None:
        if site is None or site in self._reported or threading.get_ident() != self._thread:
            return
        self._reported.add(site)
        self._report(
            f"{site} {what} while a batch is made: it differs from run to run. Use detaug.current().generator, or a "
            "generator seeded from it."
        )


def is_the_time(seed: float) -> bool:
    """Whether a seed is the present time in seconds, milli-, micro- or nanoseconds, or what 32 bits keep of it."""
    if not 0 < seed < 2e19:  # nanoseconds since 1970 take 61 bits
        return False
    now = time.time()
    for unit in _UNITS:
        if abs(seed - now * unit) <= _NOW * unit:
            return True
        # Of units whose ten seconds fill much of 32 bits anything would be taken for the time.
        if unit <= 1e3 and seed < 2**32 and abs(seed - int(now * unit) % 2**32) <= _NOW * unit:
            return True
    return False
