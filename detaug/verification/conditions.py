"""The surroundings of a pipeline, held constant or changed: the system's randomness, clock, process
number and folders.

Everything is held still in two runs but for one thing: if the batches differ, that thing is what
they depend on. Where only the calls from one line are changed, it is that line.
"""

from __future__ import annotations

import hashlib
import os
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from types import FrameType, ModuleType
from typing import Any, NamedTuple

import numpy as np

from detaug.seeding.generators import reseed_global_rngs
from detaug.system.interception import (
    Site,
    Substitution,
    caller_of_randomness,
    direct_caller,
    first_outside_library,
)
from detaug.system.unseeded_draws import PROCESS_NUMBERS, seeding_watched, substitutes

#: What all clocks count from, in seconds.
_START = 1_700_000_000.0
_CLOCKS = ("time", "monotonic", "perf_counter", "process_time", "thread_time")


class Conditions(NamedTuple):
    """What surrounds a pipeline: everything is held still, but for one thing at most ("randomness",
    "clock" ...), which is in another state, for all calls or those from one line alone.
    """

    changed: str = ""
    number: int = 0
    only: Site | None = None

    def state_of(self, factor: str, site: Site | None = None) -> int:
        """The state of a thing for a line; 0 is the still one."""
        return self.number if factor == self.changed and self.only in (None, site) else 0


class ControlledEnvironment:
    """Functions that answer the pipeline's code as the conditions say, and note which lines asked,
    by which function.
    """

    def __init__(self, conditions: Conditions) -> None:
        self.sites: dict[str, dict[Site, str]] = {
            each: {} for each in ("randomness", "clock", "process", "folders")
        }
        self._conditions = conditions
        self.begin_batch()

    def begin_batch(self) -> None:
        """Each batch gets the same clock and the same random bytes at any place in the order of
        batches.
        """
        self._drawn = 0
        # By thread: another one of the program's, which reads a clock just now, must not move the
        # pipeline's.
        self._clocks_read: Counter[int] = Counter()

    @contextmanager
    def around(self) -> Iterator[None]:
        """Inside, the pipeline's code meets them; the standard library and detaug do not."""
        found = {**substitutes(self._asked), **self._replacements()}
        with Substitution(found).made(), seeding_watched(self._asked):
            # Last: what is above may draw.
            reseed_global_rngs(
                np.random.SeedSequence([0x7E57, self._conditions.state_of("global_state")])
            )
            yield

    def _replacements(self) -> dict[Any, Any]:
        folder = partial(self._answering, os, factor="folders", caller=first_outside_library)
        found = {
            os.listdir: folder("listdir", answer=partial(_in_order, os.listdir)),
            os.scandir: folder("scandir", answer=partial(_Entries, os.scandir)),
        }
        for module, name in PROCESS_NUMBERS:
            if hasattr(module, name):
                found[getattr(module, name)] = self._answering(
                    module, name, "process", _process_number
                )
        for name in _CLOCKS:
            found[getattr(time, name)] = self._answering(time, name, "clock", self._clock)
            found[getattr(time, f"{name}_ns")] = self._answering(
                time, f"{name}_ns", "clock", lambda state: int(1e9 * self._clock(state))
            )
        return found

    def _answering(
        self,
        module: ModuleType,
        name: str,
        factor: str,
        answer: Callable[..., Any],
        caller: Callable[[FrameType], Site | None] = direct_caller,
    ) -> Callable[..., Any]:
        """A function in the place of the module's, which gives the pipeline's code ``answer(state,
        *arguments)``.
        """
        real = getattr(module, name)

        def function(*arguments: Any, **options: Any) -> Any:
            site = caller(sys._getframe(1))
            if site is None:
                return real(*arguments, **options)
            return answer(
                self._noted(factor, site, f"{module.__name__}.{name}"), *arguments, **options
            )

        return function

    def _noted(self, factor: str, site: Site, function: str) -> int:
        """The state of that thing for this line."""
        self.sites[factor].setdefault(site, function)
        return self._conditions.state_of(factor, site)

    def _asked(self, function: str, size: int, frame: FrameType) -> bytes | None:
        site = caller_of_randomness(frame)
        if site is None:
            return None
        number = self._noted("randomness", site, function)
        self._drawn += 1
        return hashlib.shake_128(f"{number}/{self._drawn}".encode()).digest(size)

    def _clock(self, state: int) -> float:
        # Another time for one line does not change the others'.
        thread = threading.get_ident()
        self._clocks_read[thread] += 1
        num_read = self._clocks_read[thread]
        if not state:
            return _START + 1e-3 * num_read
        # From no time to twenty seconds later: whichever of two things is timed may be the quicker
        # one.
        return (
            _START + 1e6 * state + 10 * (num_read + random.Random(f"{state}/{num_read}").random())
        )


def _process_number(state: int, *_: Any) -> int:
    return 4_000 + 917 * state


def _in_order(real: Callable[..., Any], state: int, *arguments: Any, **options: Any) -> list[Any]:
    entries = sorted(real(*arguments, **options), key=lambda entry: getattr(entry, "name", entry))
    if state:
        random.Random(state).shuffle(entries)
    return entries


class _Entries(ExitStack):
    """What `os.scandir` returns: an iterator that can be closed."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__()
        self._entries = iter(_in_order(*arguments, **options))

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return next(self._entries)
