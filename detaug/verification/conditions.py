"""The surroundings of a pipeline, held constant or changed: the system's randomness, clock, process number and folders.

Everything is held still in two runs but for one thing: if the batches differ, that thing is what they depend on. Where
only the calls from one line are changed, it is that line.
"""

from __future__ import annotations

import datetime
import gc
import hashlib
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from types import FrameType
from typing import Any, NamedTuple

import numpy as np

from detaug.seeding.generators import reseed_global_rngs
from detaug.watching.interception import Site, Substitution, caller_of_randomness, direct_caller, first_outside_library
from detaug.watching.randomness import seeding_watched, substitutes

_WALL, _SINCE_START = 1_700_000_000.0, 10_000.0
_CLOCKS = {"time": _WALL, **dict.fromkeys(("monotonic", "perf_counter", "process_time", "thread_time"), _SINCE_START)}


class _Real:
    """The real functions. Attributes of a class are not names of a module, so nothing is put in their place."""

    datetime = datetime.datetime
    listdir = staticmethod(os.listdir)
    scandir = staticmethod(os.scandir)


class Conditions(NamedTuple):
    """What surrounds a pipeline: everything is held still, but for one thing at most ("randomness", "clock" ...), which is in
    another state, for all calls or those from one line alone."""

    changed: str = ""
    number: int = 0
    only: Site | None = None

    def state_of(self, factor: str, site: Site | None = None) -> int:
        """The state of a thing for a line; 0 is the still one."""
        return self.number if factor == self.changed and self.only in (None, site) else 0


class Surroundings:
    """Functions that answer the pipeline's code as the conditions say, and note which lines asked, by which function."""

    def __init__(self, conditions: Conditions) -> None:
        self.sites: dict[str, dict[Site, str]] = {
            factor: {} for factor in ("randomness", "clock", "process", "folders")
        }
        self._conditions = conditions
        self.begin_batch()

    def begin_batch(self) -> None:
        """Each batch gets the same clock and the same random bytes at any place in the order of batches."""
        self._drawn = self._read = 0

    @contextmanager
    def around(self) -> Iterator[None]:
        """Inside, the pipeline's code meets them; the standard library and detaug do not."""
        found = {**substitutes(self._asked), **self._replacements()}
        collectors = list(gc.callbacks)
        with ExitStack() as stack:
            # Libraries that time the garbage collector (hypothesis, dask) would read the clock at unpredictable moments.
            stack.callback(gc.callbacks.extend, collectors)
            gc.callbacks.clear()
            stack.enter_context(Substitution(found).made())
            stack.enter_context(seeding_watched(self._asked))
            # Last: what is above may draw.
            reseed_global_rngs(np.random.SeedSequence([0x7E57, self._conditions.state_of("global_state")]))
            yield

    def _replacements(self) -> dict[Any, Any]:
        found: dict[Any, Any] = {
            datetime.datetime: self._datetime(),
            os.listdir: self._listdir,
            os.scandir: self._scandir,
        }
        for name, base in _CLOCKS.items():
            for real in (getattr(time, name), getattr(time, f"{name}_ns")):
                found[real] = self._clock_function(real, base)
        for real in (os.getpid, os.getppid, threading.get_native_id):
            found[real] = self._process_function(real)
        return found

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

    def _clock_function(self, real: Callable[[], Any], base: float) -> Callable[[], Any]:
        def read() -> Any:
            site = direct_caller(sys._getframe(1))
            if site is None:
                return real()
            seconds = self._time(site, f"time.{real.__name__}", base)
            # A float of seconds since 1970 resolves a quarter of a microsecond: nanoseconds are made from whole
            # microseconds, so that `time` and `time_ns` agree to the microsecond.
            return int(seconds * 1_000_000) * 1_000 if real.__name__.endswith("_ns") else seconds

        return read

    def _time(self, site: Site, function: str, base: float) -> float:
        number = self._noted("clock", site, function)
        # Another time for one line does not change the others'.
        self._read += 1
        if not number:
            return base + 1e-3 * self._read
        # From no time to twenty seconds later: whichever of two things is timed may be the quicker one.
        return base + 1e6 * number + 10 * (self._read + random.Random(f"{number}/{self._read}").random())

    def _datetime(self) -> type:
        def told(frame: FrameType, tz: datetime.tzinfo | None = None) -> datetime.datetime:
            site = direct_caller(frame)
            if site is None:
                return _Real.datetime.now(tz)
            return _Real.datetime.fromtimestamp(self._time(site, "datetime.now", _WALL), tz)

        class Kind(type(datetime.datetime)):  # type: ignore[misc]
            def __instancecheck__(cls, value: object) -> bool:
                return isinstance(value, _Real.datetime)

        class Datetime(datetime.datetime, metaclass=Kind):  # its `today` asks `time.time`
            @classmethod
            def now(cls, tz: datetime.tzinfo | None = None) -> Any:
                return told(sys._getframe(1), tz)

            @classmethod
            def utcnow(cls) -> Any:
                return told(sys._getframe(1), datetime.UTC).replace(tzinfo=None)

        return Datetime

    def _process_function(self, real: Callable[[], int]) -> Callable[[], int]:
        def number() -> int:
            site = direct_caller(sys._getframe(1))
            return real() if site is None else 4_000 + 917 * self._noted("process", site, real.__name__)

        return number

    def _in_order(self, site: Site, function: str, entries: list[Any], key: Callable[[Any], Any]) -> list[Any]:
        entries = sorted(entries, key=key)
        number = self._noted("folders", site, function)
        if number:
            random.Random(number).shuffle(entries)
        return entries

    def _listdir(self, path: Any = ".") -> list[Any]:
        entries = _Real.listdir(path)
        site = first_outside_library(sys._getframe(1))
        return entries if site is None else self._in_order(site, "os.listdir", entries, lambda name: name)

    def _scandir(self, path: Any = ".") -> Any:
        site = first_outside_library(sys._getframe(1))
        if site is None:
            return _Real.scandir(path)
        with _Real.scandir(path) as scan:
            return _Entries(self._in_order(site, "os.scandir", list(scan), lambda entry: entry.name))


class _Entries(Iterator[Any], AbstractContextManager[Any]):
    """What `os.scandir` returns: an iterator that can be closed."""

    def __init__(self, entries: list[Any]) -> None:
        self._entries = iter(entries)

    def __next__(self) -> Any:
        return next(self._entries)

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Nothing is open."""
