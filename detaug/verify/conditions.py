"""What surrounds a pipeline, held still or changed: chance from the system, clock, process number, folders, threads.

Everything is held still in two runs but for one thing: if the batches differ, that thing is what they depend on. Where
only the calls from one line are changed, it is that line.
"""

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
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from detaug.global_rng import reseed_global_rngs
from detaug.interception import Site, Substitution, caller_of_chance, direct_caller, first_outside_library

#: What can be changed, by the names of the fields of `Conditions`.
FACTORS = ("chance", "clock", "process", "folders", "threads", "global_state")


@dataclass(frozen=True)
class Conditions:
    """Each number names one state of one thing; 0 is the still one.

    Attributes:
        chance: what the operating system gives for randomness.
        clock: what `time` and `datetime` say. 0: a millisecond passes from call to call; otherwise random times do.
        process: what `os.getpid` and the like say.
        folders: the order in which folders list their files. 0: sorted.
        threads: how long threads are held up. 0: not at all.
        global_state: the global generators' state when the pipeline is made.
        only: nothing is changed but what this line is given.
    """

    chance: int = 0
    clock: int = 0
    process: int = 0
    folders: int = 0
    threads: int = 0
    global_state: int = 0
    only: Site | None = None

    def changed(self, factor: str, number: int, only: Site | None = None) -> Conditions:
        """The same but for one thing."""
        return replace(self, **{factor: number}, only=only)


@dataclass
class Calls:
    """Which lines asked for what, in the order in which they first did, and by which function.

    Attributes:
        sites: for each factor.
        start_over: to be called before every batch, which then meets the same clock and the same chance wherever in
            the order of batches it comes.
    """

    sites: dict[str, dict[Site, str]] = field(default_factory=lambda: {factor: {} for factor in FACTORS})
    start_over: Callable[[], None] = lambda: None

    def note(self, factor: str, site: Site, function: str) -> None:
        """One call."""
        self.sites[factor].setdefault(site, function)


@contextmanager
def under(conditions: Conditions) -> Iterator[Calls]:
    """Inside, the pipeline's code meets these conditions; the standard library's own affairs and detaug's do not."""
    calls = Calls()
    stage = _Stage(conditions, calls)
    with ExitStack() as stack:
        stack.enter_context(_substituted(stage.replacements()))
        stack.enter_context(stage.unseeded_python_generators())
        stack.enter_context(stage.thread_starts())
        if conditions.threads:
            stack.enter_context(_threads_held_up(conditions.threads))
        reseed_global_rngs(np.random.SeedSequence([0x7E57, conditions.global_state]))
        yield calls


_known: dict[tuple[int, ...], Substitution] = {}


def _substituted(replacements: dict[Any, Any]) -> AbstractContextManager[None]:
    originals = list(replacements)
    substitution = _known.setdefault(tuple(map(id, originals)), Substitution(originals))
    return substitution.by(list(replacements.values()))


class _Stage:
    def __init__(self, conditions: Conditions, calls: Calls) -> None:
        self._conditions = conditions
        self._calls = calls
        calls.start_over = self._start_over
        self._start_over()

    def _start_over(self) -> None:
        self._drawn = 0
        self._clocks = {number: _Clock(number) for number in {0, self._conditions.clock}}

    def replacements(self) -> dict[Any, Any]:
        found: dict[Any, Any] = {os.urandom: self._urandom, uuid.uuid1: self._uuid1, torch.seed: self._torch_seed}
        if hasattr(os, "getrandom"):
            found[os.getrandom] = self._urandom
        found[random.seed] = self._seed_python
        for name, unit, base in _CLOCKS:
            if hasattr(time, name):
                found[getattr(time, name)] = self._clock_function(name, unit, base, getattr(time, name))
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

    # --- chance

    def _bytes(self, site: Site, function: str, size: int) -> bytes:
        self._calls.note("chance", site, function)
        self._drawn += 1
        key = f"{self._number('chance', site)}/{self._drawn}".encode()
        return hashlib.shake_128(key).digest(size)

    def _urandom(self, size: int, flags: int = 0) -> bytes:
        frame = sys._getframe(1)
        site = caller_of_chance(frame)
        return _Real.urandom(size) if site is None else self._bytes(site, "os.urandom", size)

    def _uuid1(self, node: int | None = None, clock_seq: int | None = None) -> uuid.UUID:
        site = caller_of_chance(sys._getframe(1))
        if site is None:
            return _Real.uuid1(node, clock_seq)
        return uuid.UUID(bytes=self._bytes(site, "uuid.uuid1", 16), version=1)

    def _torch_seed(self) -> int:
        site = caller_of_chance(sys._getframe(1))
        if site is None:
            return _Real.torch_seed()
        number = int.from_bytes(self._bytes(site, "torch.seed", 7), "little")
        torch.default_generator.manual_seed(number)
        return number

    def _seed_python(self, a: Any = None, version: int = 2) -> None:
        site = caller_of_chance(sys._getframe(1)) if a is None else None
        random._inst.seed(self._bytes(site, "random.seed", 32) if site is not None else a, version)

    @contextmanager
    def unseeded_python_generators(self) -> Iterator[None]:
        """``random.Random()`` asks the system in C, where nothing can be put in its place but the method itself."""
        original = random.Random.seed

        def seed(generator: random.Random, a: Any = None, version: int = 2) -> None:
            if a is None:
                site = caller_of_chance(sys._getframe(1))
                a = None if site is None else self._bytes(site, "random.Random", 32)
            original(generator, a, version)

        random.Random.seed = seed  # type: ignore[method-assign,assignment]
        try:
            yield
        finally:
            random.Random.seed = original  # type: ignore[method-assign]

    @contextmanager
    def thread_starts(self) -> Iterator[None]:
        """Who starts threads is noted."""
        original = threading.Thread.start

        def begin(thread: threading.Thread) -> None:
            site = first_outside_library(sys._getframe(1))
            if site is not None:
                self._calls.note("threads", site, "threading.Thread.start")
            original(thread)

        threading.Thread.start = begin  # type: ignore[method-assign,assignment]
        try:
            yield
        finally:
            threading.Thread.start = original  # type: ignore[method-assign]

    # --- clock and process

    def _clock_function(self, name: str, unit: float, base: float, real: Callable[..., Any]) -> Callable[..., Any]:
        def read() -> Any:
            site = direct_caller(sys._getframe(1))
            return real() if site is None else self._time(site, f"time.{name}", unit, base)

        read.__name__ = name
        return read

    def _time(self, site: Site, function: str, unit: float, base: float) -> Any:
        self._calls.note("clock", site, function)
        seconds = base + self._clocks[self._number("clock", site)].read()
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
                return cls.now(datetime.timezone.utc).replace(tzinfo=None)

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


@contextmanager
def _threads_held_up(number: int) -> Iterator[None]:
    """Threads that start inside sleep for random times when they start, and now and then on their way."""
    chance = random.Random(number)
    interval = sys.getswitchinterval()
    begun = threading.local()

    def hold_up(_frame: Any, event: str, _argument: Any) -> None:
        if event != "call":
            return
        if not getattr(begun, "yes", False):
            begun.yes = True
            _Real.sleep(chance.uniform(0.0, 0.02))
        elif chance.random() < 0.05:
            _Real.sleep(chance.uniform(0.0, 0.005))

    before = threading.getprofile() if hasattr(threading, "getprofile") else None
    threading.setprofile(hold_up)
    sys.setswitchinterval(1e-5)
    try:
        yield
    finally:
        threading.setprofile(before)
        sys.setswitchinterval(interval)


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
    listdir = staticmethod(os.listdir)
    scandir = staticmethod(os.scandir)
    sleep = staticmethod(time.sleep)
