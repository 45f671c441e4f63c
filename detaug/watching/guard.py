"""The cheap check at run time: finds the lines that draw unseeded random numbers while a batch is made.

All generators that are created without a seed ask the operating system: NumPy's, Python's `random.Random`,
`random.SystemRandom`, `secrets` and `uuid4` through `os.urandom`, under any name in a module. The guard intercepts these
calls, and costs nothing elsewhere. It notices seeding by the time of day in the four functions that seed. `detaug.verify`
finds the rest.
"""

from __future__ import annotations

import os
import random
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from detaug.watching.interception import Site, Substitution, caller_of_randomness, direct_caller

#: How far (seconds) from now a number may be and still be taken for the time of day.
_NOW = 10.0
_UNITS = (1.0, 1e3, 1e6, 1e9)

_UNGOVERNED = "draws random numbers from the operating system, which no seed governs,"
_random_method = random.Random.seed


class Guard:
    """Reports each line that draws unseeded random numbers once.

    Args:
        report: called with a sentence that names ``file:line``.
    """

    def __init__(self, report: Callable[[str], None]) -> None:
        self._report = report
        self._reported: set[Site] = set()
        self._thread = 0
        asked: list[Any] = [os.urandom, uuid.uuid1, torch.seed, *([os.getrandom] if hasattr(os, "getrandom") else [])]
        seeded: list[Any] = [np.random.default_rng, np.random.seed, torch.manual_seed]
        substitutes = {
            **{function: self._asking(function) for function in asked},
            **{function: self._seeding(function) for function in seeded},
            random.seed: self._seeding(random.seed, asks=True),
        }
        self._substitution = Substitution(list(substitutes))
        self._substitutes = list(substitutes.values())
        self._method = self._seeding(_random_method, asks=True, place=1)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Reports such lines of this thread inside the block."""
        self._thread = threading.get_ident()
        # random.Random() asks the system in C: its method is the only place to notice it.
        random.Random.seed = self._method  # type: ignore[method-assign]
        try:
            with self._substitution.by(self._substitutes):
                yield
        finally:
            random.Random.seed = _random_method  # type: ignore[method-assign]

    def _asking(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def ask(*arguments: Any, **options: Any) -> Any:
            self._notice(caller_of_randomness(sys._getframe(1)))
            return function(*arguments, **options)

        ask.__name__ = function.__name__
        return ask

    def _seeding(self, function: Callable[..., Any], asks: bool = False, place: int = 0) -> Callable[..., Any]:
        """`asks`: without a seed it asks the system itself; `place`: of the seed among the arguments."""

        def seed(*arguments: Any, **options: Any) -> Any:
            given = arguments[place] if len(arguments) > place else options.get("a")
            if given is not None:
                self._check(given, sys._getframe(1))
            elif asks:
                self._notice(caller_of_randomness(sys._getframe(1)))
            return function(*arguments, **options)

        seed.__name__ = function.__name__
        return seed

    def _check(self, seed: Any, frame: Any) -> None:
        if isinstance(seed, (int, float)) and is_the_time(seed):
            self._notice(direct_caller(frame), "seeds a random generator by the time of day")

    def _notice(self, site: Site | None, what: str = _UNGOVERNED) -> None:
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
