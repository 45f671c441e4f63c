"""Replacements for `os.urandom`, `time.time`, `os.listdir` and the like during a trial."""

from __future__ import annotations

import datetime
import hashlib
import os
import random
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
import torch

from detaug.verification.trials.conditions import Calls, Conditions
from detaug.watching.interception import Site, caller_of_randomness, direct_caller, first_outside_library

_WALL, _SINCE_START = 1_700_000_000.0, 10_000.0
_CLOCKS = [
    ("time", 1.0, _WALL),
    ("time_ns", 1e9, _WALL),
    *((name, 1.0, _SINCE_START) for name in ("monotonic", "perf_counter", "process_time", "thread_time")),
    *((f"{name}_ns", 1e9, _SINCE_START) for name in ("monotonic", "perf_counter", "process_time", "thread_time")),
]


class _Real:
    """The real functions. Attributes of a class are not names of a module, so nothing is put in their place."""

    urandom = staticmethod(os.urandom)
    uuid1 = staticmethod(uuid.uuid1)
    torch_seed = staticmethod(torch.seed)
    datetime = datetime.datetime
    localtime = staticmethod(time.localtime)
    listdir = staticmethod(os.listdir)
    scandir = staticmethod(os.scandir)


class Substitutes:
    """Functions that answer the pipeline's code as the conditions say, and note who asked.

    Args:
        conditions: what to answer.
        calls: where it is noted.
    """

    def __init__(self, conditions: Conditions, calls: Calls) -> None:
        self._conditions = conditions
        self._calls = calls
        calls.start_over = self._start_over
        self._begin()

    def _start_over(self) -> None:
        self._calls.batch += 1
        self._begin()

    def _begin(self) -> None:
        self._drawn = 0
        self._clocks = {number: _Clock(number) for number in {0, self._conditions.clock}}

    def replacements(self) -> dict[Any, Any]:
        """Each function, and its replacement."""
        found: dict[Any, Any] = {os.urandom: self._urandom, uuid.uuid1: self._uuid1, torch.seed: self._torch_seed}
        if hasattr(os, "getrandom"):
            found[os.getrandom] = self._urandom
        found[random.seed] = self._seed_python
        for function in (np.random.default_rng, np.random.seed, torch.manual_seed):
            found[function] = self._seeding(function)
        for name, unit, base in _CLOCKS:
            if hasattr(time, name):
                found[getattr(time, name)] = self._clock_function(name, unit, base, getattr(time, name))
        for name in ("localtime", "gmtime", "ctime", "asctime", "strftime"):
            found[getattr(time, name)] = self._calendar_function(name, getattr(time, name))
        for name, unit in (("clock_gettime", 1.0), ("clock_gettime_ns", 1e9)):
            if hasattr(time, name):
                found[getattr(time, name)] = self._any_clock_function(name, unit, getattr(time, name))
        found[datetime.datetime] = self._datetime()
        for module, name in ((os, "getpid"), (os, "getppid"), (threading, "get_native_id")):
            if hasattr(module, name):
                found[getattr(module, name)] = self._process_function(name, getattr(module, name))
        found[os.listdir] = self._listdir
        found[os.scandir] = self._scandir
        return found

    def _number(self, factor: str, site: Site) -> int:
        chosen = self._conditions.only
        return int(getattr(self._conditions, factor)) if chosen is None or chosen == site else 0

    # --- randomness

    def _bytes(self, site: Site, function: str, size: int) -> bytes:
        self._calls.note("randomness", site, function)
        self._drawn += 1
        key = f"{self._number('randomness', site)}/{self._drawn}".encode()
        return hashlib.shake_128(key).digest(size)

    def _urandom(self, size: int, flags: int = 0) -> bytes:
        frame = sys._getframe(1)
        site = caller_of_randomness(frame)
        return _Real.urandom(size) if site is None else self._bytes(site, "os.urandom", size)

    def _uuid1(self, node: int | None = None, clock_seq: int | None = None) -> uuid.UUID:
        site = caller_of_randomness(sys._getframe(1))
        if site is None:
            return _Real.uuid1(node, clock_seq)
        return uuid.UUID(bytes=self._bytes(site, "uuid.uuid1", 16), version=1)

    def _torch_seed(self) -> int:
        site = caller_of_randomness(sys._getframe(1))
        if site is None:
            return _Real.torch_seed()
        number = int.from_bytes(self._bytes(site, "torch.seed", 7), "little")
        torch.default_generator.manual_seed(number)
        return number

    def _seeding(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def seed(*arguments: Any, **options: Any) -> Any:
            for given in (*arguments, *options.values()):
                self._calls.note_seed(caller_of_randomness(sys._getframe(1)), given)
            return function(*arguments, **options)

        seed.__name__ = function.__name__
        return seed

    def _seed_python(self, a: Any = None, version: int = 2) -> None:
        site = caller_of_randomness(sys._getframe(1))
        if a is not None:
            self._calls.note_seed(site, a)
            site = None
        random._inst.seed(self._bytes(site, "random.seed", 32) if site is not None else a, version)

    def unseeded_python_generators(self) -> AbstractContextManager[None]:
        """``random.Random()`` asks the system in C, where nothing can be put in its place but the method itself."""
        original = random.Random.seed

        def seed(generator: random.Random, a: Any = None, version: int = 2) -> None:
            if a is None:
                site = caller_of_randomness(sys._getframe(1))
                a = None if site is None else self._bytes(site, "random.Random", 32)
            else:
                self._calls.note_seed(caller_of_randomness(sys._getframe(1)), a)
            original(generator, a, version)

        return _method_replaced(random.Random, "seed", seed)

    def thread_starts(self) -> AbstractContextManager[None]:
        """Inside, who starts threads is noted."""
        original = threading.Thread.start

        def begin(thread: threading.Thread) -> None:
            site = first_outside_library(sys._getframe(1))
            if site is not None:
                self._calls.note("threads", site, "threading.Thread.start")
            original(thread)

        return _method_replaced(threading.Thread, "start", begin)

    # --- clock and process

    def _clock_function(self, name: str, unit: float, base: float, real: Callable[..., Any]) -> Callable[..., Any]:
        def read() -> Any:
            site = direct_caller(sys._getframe(1))
            return real() if site is None else self._time(site, f"time.{name}", unit, base)

        read.__name__ = name
        return read

    def _calendar_function(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        """`time.localtime()` and the like read the clock where they are not given a time."""
        formats = {"strftime": 1}.get(name, 0)

        def read(*arguments: Any) -> Any:
            asked = len(arguments) == formats or arguments[formats:] == (None,)
            site = direct_caller(sys._getframe(1)) if asked else None
            if site is None:
                return real(*arguments)
            seconds = self._time(site, f"time.{name}", 1.0, _WALL)
            moment = seconds if name in ("localtime", "gmtime", "ctime") else _Real.localtime(seconds)
            return real(*arguments[:formats], moment)

        read.__name__ = name
        return read

    def _any_clock_function(self, name: str, unit: float, real: Callable[..., Any]) -> Callable[..., Any]:
        def read(clock: int) -> Any:
            site = direct_caller(sys._getframe(1))
            if site is None:
                return real(clock)
            return self._time(site, f"time.{name}", unit, _WALL if clock == time.CLOCK_REALTIME else _SINCE_START)

        read.__name__ = name
        return read

    def _time(self, site: Site, function: str, unit: float, base: float) -> Any:
        self._calls.note("clock", site, function)
        # All clocks advance, so that another time for one line does not change the others'.
        now = {number: clock.read() for number, clock in self._clocks.items()}
        seconds = base + now[self._number("clock", site)]
        # A float of seconds since 1970 resolves a quarter of a microsecond: nanoseconds are made from whole microseconds,
        # so that `time` and `time_ns` agree to the microsecond.
        return int(seconds * 1_000_000) * 1_000 if unit == 1e9 else seconds

    def _datetime(self) -> type:
        stage = self

        class Kind(type(datetime.datetime)):  # type: ignore[misc]
            def __instancecheck__(cls, value: object) -> bool:
                return isinstance(value, _Real.datetime)

        class Datetime(datetime.datetime, metaclass=Kind):
            @classmethod
            def now(cls, tz: datetime.tzinfo | None = None) -> Any:
                site = direct_caller(sys._getframe(1))
                if site is None:
                    return _Real.datetime.now(tz)
                return _Real.datetime.fromtimestamp(stage._time(site, "datetime.now", 1.0, _WALL), tz)

            @classmethod
            def utcnow(cls) -> Any:
                return cls.now(datetime.UTC).replace(tzinfo=None)

            @classmethod
            def today(cls) -> Any:
                return cls.now()

        return Datetime

    def _process_function(self, name: str, real: Callable[[], int]) -> Callable[[], int]:
        def number() -> int:
            site = direct_caller(sys._getframe(1))
            if site is None:
                return real()
            self._calls.note("process", site, f"os.{name}" if hasattr(os, name) else f"threading.{name}")
            return 4_000 + 917 * self._number("process", site)

        return number

    # --- folders

    def _in_order(self, site: Site, function: str, entries: list[Any], key: Callable[[Any], Any]) -> list[Any]:
        self._calls.note("folders", site, function)
        entries = sorted(entries, key=key)
        number = self._number("folders", site)
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


@contextmanager
def _method_replaced(owner: type, name: str, method: Callable[..., Any]) -> Iterator[None]:
    original = getattr(owner, name)
    setattr(owner, name, method)
    try:
        yield
    finally:
        setattr(owner, name, original)


class _Clock:
    """Seconds since it was made, of which every call takes some."""

    def __init__(self, number: int) -> None:
        self._random = random.Random(number) if number else None
        self._seconds = 0.0 if self._random is None else self._random.uniform(1e3, 1e7)

    def read(self) -> float:
        # From a microsecond to ten: whichever of two things is timed may be the quicker one.
        self._seconds += 1e-3 if self._random is None else 10.0 ** self._random.uniform(-6, 1)
        return self._seconds


class _Entries:
    """What `os.scandir` returns: an iterator that can be closed."""

    def __init__(self, entries: list[Any]) -> None:
        self._entries = iter(entries)

    def __iter__(self) -> _Entries:
        return self

    def __next__(self) -> Any:
        return next(self._entries)

    def __enter__(self) -> _Entries:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Nothing is open."""
