"""The environment of a pipeline, held constant or changed: randomness, clock, process id, folders.

Two runs differ in one factor alone. If the batches differ, they depend on that factor. If only the
calls from one line are changed, they depend on that line.
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
    Holders,
    Site,
    Substitution,
    caller_of_randomness,
    direct_caller,
    first_outside_library,
)
from detaug.system.unseeded_draws import PROCESS_NUMBERS, seeding_watched, substitutes

#: All clocks count from here, in seconds.
_START = 1_700_000_000.0
_CLOCKS = ("time", "monotonic", "perf_counter", "process_time", "thread_time")


class Conditions(NamedTuple):
    """The states of all factors, of which at most one is changed.

    Attributes:
        changed: the changed factor ("randomness", "clock" ...), or "".
        number: its state; all other factors have state 0.
        only: the line whose calls alone are changed; None: all calls are.
    """

    changed: str = ""
    number: int = 0
    only: Site | None = None

    def state_of(self, factor: str, site: Site | None = None) -> int:
        """Return the factor's state for calls from a line; 0: it is held still."""
        if factor != self.changed:
            return 0
        if self.only is not None and self.only != site:
            return 0
        return self.number


class ControlledEnvironment:
    """Replacements of functions, which answer the pipeline's code as the conditions say.

    Args:
        conditions: that hold inside `around`.
        holders: of the functions, which another environment has searched for; None: its own.

    Attributes:
        sites: the lines that asked, by factor, each with the name of the first function it called.
    """

    def __init__(self, conditions: Conditions, holders: Holders | None = None) -> None:
        self.sites: dict[str, dict[Site, str]] = {
            "randomness": {},
            "clock": {},
            "process": {},
            "folders": {},
        }
        self._conditions = conditions
        self._holders = holders or Holders()
        self.begin_batch()

    def begin_batch(self) -> None:
        """Restart the clock and the random bytes: a batch's must not depend on earlier batches."""
        self._num_draws = 0
        # By thread: a clock that another thread of the program reads just now must not move the
        # pipeline's.
        self._clock_reads: Counter[int] = Counter()

    @contextmanager
    def around(self) -> Iterator[None]:
        """Replace the functions for the pipeline's code, inside the block.

        The standard library and detaug itself meet the real ones.
        """
        replacements = {**substitutes(self._random_bytes), **self._replacements()}
        substitution = Substitution(replacements, self._holders)
        with substitution.applied(), seeding_watched(self._random_bytes):
            # After the substitution, which may draw.
            state = self._conditions.state_of("global_state")
            reseed_global_rngs(np.random.SeedSequence([0x7E57, state]))
            yield

    def _replacements(self) -> dict[Any, Any]:
        """Return the replacement of each function but the random ones."""
        replacements = {
            os.listdir: self._answering(
                os,
                "listdir",
                "folders",
                partial(_in_order, os.listdir),
                caller=first_outside_library,
            ),
            os.scandir: self._answering(
                os,
                "scandir",
                "folders",
                partial(_Entries, os.scandir),
                caller=first_outside_library,
            ),
        }
        for module, name in PROCESS_NUMBERS:
            if hasattr(module, name):
                function = getattr(module, name)
                replacements[function] = self._answering(module, name, "process", _process_id)
        for name in _CLOCKS:
            # Both forms of a clock count reads together, since a program may mix them.
            name_ns = f"{name}_ns"
            clock = getattr(time, name)
            clock_ns = getattr(time, name_ns)
            replacements[clock] = self._answering(time, name, "clock", self._clock)
            replacements[clock_ns] = self._answering(time, name_ns, "clock", self._clock_ns)
        return replacements

    def _answering(
        self,
        module: ModuleType,
        name: str,
        factor: str,
        answer: Callable[..., Any],
        caller: Callable[[FrameType], Site | None] = direct_caller,
    ) -> Callable[..., Any]:
        """Return a function to replace the module's.

        Args:
            module, name: of the function that is replaced; all others than the pipeline call it.
            factor: of `Conditions` to which it belongs.
            answer: called with the factor's state and the arguments of the pipeline's call.
            caller: returns the pipeline's line that calls; None if it is not the pipeline.
        """
        real = getattr(module, name)

        def function(*arguments: Any, **options: Any) -> Any:
            # Libraries ask the clock, too (logging, multiprocessing): they get the real one.
            site = caller(sys._getframe(1))
            if site is None:
                return real(*arguments, **options)
            state = self._record(factor, site, f"{module.__name__}.{name}")
            return answer(state, *arguments, **options)

        return function

    def _record(self, factor: str, site: Site, function: str) -> int:
        """Record that a line called a function, and return the state that the line gets to see."""
        # A line may call several functions; messages name the first.
        self.sites[factor].setdefault(site, function)
        return self._conditions.state_of(factor, site)

    def _random_bytes(self, function: str, size: int, frame: FrameType) -> bytes | None:
        """Return `size` bytes for the pipeline's code; None for all others: the system's."""
        # Libraries that draw for themselves, such as `tempfile`, get real random bytes.
        site = caller_of_randomness(frame)
        if site is None:
            return None
        state = self._record("randomness", site, function)
        self._num_draws += 1
        # Counted over all lines, so that no two draws in a batch get the same bytes.
        return hashlib.shake_128(f"{state}/{self._num_draws}".encode()).digest(size)

    def _clock(self, state: int) -> float:
        """Return the time in seconds: in state 0 each read is a millisecond after the last one."""
        # Reads of all lines are counted: another time for one line does not change the others'.
        thread = threading.get_ident()
        self._clock_reads[thread] += 1
        num_reads = self._clock_reads[thread]
        if state == 0:
            return _START + 1e-3 * num_reads
        # Reads are up to twenty seconds apart: of two things that are timed either may be quicker.
        jitter = random.Random(f"{state}/{num_reads}").random()
        return _START + 1e6 * state + 10 * (num_reads + jitter)

    def _clock_ns(self, state: int) -> int:
        """Return the time in nanoseconds."""
        return int(1e9 * self._clock(state))


def _process_id(state: int, *_: Any) -> int:
    """Return the process id of a state."""
    return 4_000 + 917 * state


def _name_of_entry(entry: Any) -> Any:
    """Return the name of what `os.scandir` or `os.listdir` lists."""
    return getattr(entry, "name", entry)


def _in_order(real: Callable[..., Any], state: int, *arguments: Any, **options: Any) -> list[Any]:
    """Return a folder's entries: by name in state 0, else shuffled."""
    # Sorted before it is shuffled: the file system's own order changes between machines.
    entries = sorted(real(*arguments, **options), key=_name_of_entry)
    if state != 0:
        random.Random(state).shuffle(entries)
    return entries


class _Entries(ExitStack):
    """The result of `os.scandir`: an iterator that can be closed."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__()
        self._entries = iter(_in_order(*arguments, **options))

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return next(self._entries)
