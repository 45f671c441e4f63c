"""Find the lines that draw unseeded random numbers: substitutes for functions that ask the system.

All generators that are created without a seed ask the operating system: NumPy's, Python's
`random.Random`, `random.SystemRandom`, `secrets` and `uuid4` through `os.urandom`, under any name
in a module.
"""

from __future__ import annotations

import os
import random
import sys
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch

from detaug.system.interception import Site, Substitution, caller_of_randomness, direct_caller

#: Called with a function's name, the number of bytes that it asks for, and the frame of the call;
#: returns the bytes, or None for the system's own.
Asked = Callable[[str, int, FrameType], bytes | None]
#: Called with a seed, and the frame of the call.
Seeded = Callable[[Any, FrameType], None]

#: Functions that give the number of a process or thread, which is another one in every run.
PROCESS_NUMBERS = (
    (os, "getpid"),
    (os, "getppid"),
    (os, "getpgrp"),
    (os, "getpgid"),
    (os, "getsid"),
    (threading, "get_native_id"),
)
#: How far (seconds) from now a number may be and still be taken for the time of day.
_NOW = 10.0
_UNITS = (1.0, 1e3, 1e6, 1e9)
#: Of others, ten seconds fill so much of 32 bits that any number would be taken for the time.
_UNITS_OF_32_BITS = (1.0, 1e3)

#: NumPy's classes whose seeds are watched. Not its bit generators: detaug looks at their classes.
_SEEDED_CLASSES = (np.random.RandomState, np.random.SeedSequence)

_seed_of_python = random.Random.seed
#: Has `is_active` where a class is given a seed in this thread.
_seeding = threading.local()


def _ignore_seed(seed: Any, frame: FrameType) -> None:
    """Do nothing: the caller does not watch seeds."""


def substitutes(asked: Asked, seeded: Seeded = _ignore_seed) -> dict[Any, Any]:
    """Return each function that is watched, and its substitute.

    ``random.Random()`` needs `seeding_watched` as well.
    """
    functions: dict[Any, Any] = {
        uuid.uuid1: _uuid1_substitute(asked),
        torch.seed: _torch_seed_substitute(asked),
        random.seed: _python_seed_substitute(asked, seeded),
    }
    for name in ("urandom", "getrandom"):
        if hasattr(os, name):
            functions[getattr(os, name)] = _urandom_substitute(f"os.{name}", asked)
    for function in (np.random.default_rng, np.random.seed, torch.manual_seed):
        functions[function] = _seeding_substitute(function, seeded)
    return functions


# The substitutes keep the originals in local variables, where nobody substitutes them. Each calls
# `sys._getframe(1)` itself: in a function that it calls, that would be its own frame.


def _urandom_substitute(name: str, asked: Asked) -> Callable[..., bytes]:
    original = os.urandom

    def ask(size: int, flags: int = 0) -> bytes:  # noqa: ARG001
        if getattr(_seeding, "is_active", False):
            # RandomState(5) asks the system, and then replaces what it was given.
            return original(size)
        answer = asked(name, size, sys._getframe(1))
        if answer is None:
            return original(size)
        return answer

    return ask


def _uuid1_substitute(asked: Asked) -> Callable[..., uuid.UUID]:
    original = uuid.uuid1

    def uuid1(*arguments: Any, **options: Any) -> uuid.UUID:
        answer = asked("uuid.uuid1", 16, sys._getframe(1))
        if answer is None:
            return original(*arguments, **options)
        return uuid.UUID(bytes=answer, version=1)

    return uuid1


def _torch_seed_substitute(asked: Asked) -> Callable[[], int]:
    original = torch.seed

    def torch_seed() -> int:
        answer = asked("torch.seed", 7, sys._getframe(1))
        if answer is None:
            return original()
        number = int.from_bytes(answer, "little")
        torch.default_generator.manual_seed(number)
        return number

    return torch_seed


def _seeding_substitute(function: Callable[..., Any], seeded: Seeded) -> Callable[..., Any]:
    def seed(*arguments: Any, **options: Any) -> Any:
        for value in (*arguments, *options.values()):
            seeded(value, sys._getframe(1))
        return function(*arguments, **options)

    seed.__name__ = function.__name__
    return seed


def _python_seed_substitute(asked: Asked, seeded: Seeded) -> Callable[..., None]:
    original = random.seed

    def seed_python(a: Any = None, version: int = 2) -> None:
        original(_seed_for_python(a, asked, seeded, sys._getframe(1)), version)

    return seed_python


def watched_classes(seeded: Seeded) -> dict[type, type]:
    """Return each of NumPy's classes that are seeded, and the class that takes its place.

    A class that takes its place makes instances of the original, counts exactly these as its own,
    and is equal to the original, so that ``isinstance`` and ``==`` give the same answers.
    """
    classes: dict[type, type] = {}
    for original in _SEEDED_CLASSES:
        names = {
            "__module__": original.__module__,
            "_original": original,
            "_seeded": staticmethod(seeded),
        }
        classes[original] = _Watched(original.__name__, (original,), names)
    return classes


class _Watched(type):
    """The metaclass of these classes. One that a user derives from them has no `_original`."""

    def __call__(cls, *arguments: Any, **options: Any) -> Any:
        original = vars(cls).get("_original")
        if original is None:
            return super().__call__(*arguments, **options)
        seeds = [seed for seed in (*arguments, *options.values()) if seed is not None]
        if not seeds:
            return original(*arguments, **options)
        for seed in seeds:
            cls._seeded(seed, sys._getframe(1))  # type: ignore[attr-defined]
        _seeding.is_active = True
        try:
            return original(*arguments, **options)
        finally:
            _seeding.is_active = False

    def __instancecheck__(cls, instance: Any) -> bool:
        original = vars(cls).get("_original")
        if original is None:
            return super().__instancecheck__(instance)
        return isinstance(instance, original)

    def __subclasscheck__(cls, subclass: type) -> bool:
        original = vars(cls).get("_original")
        if original is None:
            return super().__subclasscheck__(subclass)
        return issubclass(subclass, original)

    def __eq__(cls, other: object) -> bool:
        return cls is other or vars(cls).get("_original") is other

    def __hash__(cls) -> int:
        return hash(vars(cls).get("_original", id(cls)))


@contextmanager
def seeding_watched(asked: Asked, seeded: Seeded = _ignore_seed) -> Iterator[None]:
    """Have ``random.Random()`` ask too, inside the block.

    It asks the system in C, where only its method can be replaced.
    """

    def seed(generator: random.Random, a: Any = None, version: int = 2) -> None:
        _seed_of_python(generator, _seed_for_python(a, asked, seeded, sys._getframe(1)), version)

    random.Random.seed = seed  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        random.Random.seed = _seed_of_python  # type: ignore[method-assign]


def _seed_for_python(a: Any, asked: Asked, seeded: Seeded, frame: FrameType) -> Any:
    """Return the user's seed for a generator of Python's; an answer where there is none."""
    if a is None:
        return asked("random.Random", 32, frame)
    seeded(a, frame)
    return a


class Guard:
    """The cheap check at run time: it reports each line that draws unseeded random numbers, once.

    It replaces the functions that ask the system, and costs nothing elsewhere. It notices seeding
    by the time of day, and by the number of a process that the pipeline has asked for, in the
    functions that seed, `RandomState` and `SeedSequence`. `detaug.verify` finds the rest.

    Args:
        report: gets a sentence that names ``file:line``.
        action: what is going on, for that sentence.
        advice: its last words.
        ignored: packages whose lines are not reported.
    """

    def __init__(
        self,
        report: Callable[[str], None],
        action: str = "a batch is made",
        advice: str = "Use detaug.current().generator, or a generator seeded from it.",
        ignored: Collection[str] = (),
    ) -> None:
        self._report = report
        self._action = action
        self._advice = advice
        self._ignored = ignored
        self._reported: set[Site] = set()
        self._thread = 0
        #: Numbers of processes that the pipeline has asked for.
        self._process_numbers: set[int] = set()
        self._substitution = Substitution(
            {
                **substitutes(self._asked, self._seeded),
                **watched_classes(self._seeded),
                **self._noting_process_numbers(),
            }
        )

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Report such lines of this thread, inside the block."""
        self._thread = threading.get_ident()
        with seeding_watched(self._asked, self._seeded), self._substitution.applied():
            yield

    def _noting_process_numbers(self) -> dict[Any, Any]:
        """Return what takes the place of functions that give the number of a process."""
        functions = {}
        for module, name in PROCESS_NUMBERS:
            if hasattr(module, name):
                function = getattr(module, name)
                functions[function] = self._noting(function)
        return functions

    def _noting(self, function: Callable[..., int]) -> Callable[..., int]:
        def ask(*arguments: Any) -> int:
            number = function(*arguments)
            if direct_caller(sys._getframe(1)) is not None:
                self._process_numbers.add(number)
            return number

        return ask

    def _asked(self, function: str, size: int, frame: FrameType) -> None:
        site = caller_of_randomness(frame)
        self._notice(site, "draws random numbers from the operating system, which no seed governs,")

    def _seeded(self, seed: Any, frame: FrameType) -> None:
        site = caller_of_randomness(frame)
        if site is None:
            return
        parts = seed if isinstance(seed, (list, tuple)) else [seed]
        for number in parts:
            if not isinstance(number, (int, float, np.integer, np.floating)):
                continue
            if number in self._process_numbers:
                reason = "seeds a random generator by the number of a process"
            elif is_the_time(number, self._process_numbers):
                reason = "seeds a random generator by the time of day"
            else:
                continue
            self._notice(site, reason)

    def _notice(self, site: Site | None, reason: str) -> None:
        """Report a line once; not one of another thread or of an ignored package."""
        if site is None or site in self._reported or threading.get_ident() != self._thread:
            return
        if not set(self._ignored).isdisjoint(Path(site.file).parts):
            return
        self._reported.add(site)
        self._report(
            f"{site} {reason} while {self._action}: it differs from run to run. {self._advice}"
        )


def is_the_time(
    seed: float | np.integer | np.floating, process_numbers: Collection[int] = ()
) -> bool:
    """Return whether a seed is the time of day.

    Args:
        seed: the time in seconds, milli-, micro- or nanoseconds, or what 32 bits keep of the first
            two.
        process_numbers: any of these may have been added to the time, in seconds or in its unit.
    """
    # Nanoseconds since 1970 take 61 bits.
    if not 0 < seed < 2e19:
        return False
    value = float(seed)
    now = time.time()
    if any(_is_near(value, now * unit % 2**32, unit) for unit in _UNITS_OF_32_BITS):
        return True
    for unit in _UNITS:
        if _is_near(value, now * unit, unit):
            return True
        for number in process_numbers:
            if _is_near(value, now * unit + number, unit):
                return True
            if _is_near(value, (now + number) * unit, unit):
                return True
    return False


def _is_near(value: float, moment: float, unit: float) -> bool:
    return abs(value - moment) <= _NOW * unit
