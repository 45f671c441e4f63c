"""Takes the place of the functions that ask the system for random numbers, and of those that seed a generator.

All generators that are created without a seed ask the operating system: NumPy's, Python's `random.Random`,
`random.SystemRandom`, `secrets` and `uuid4` through `os.urandom`, under any name in a module.
"""

from __future__ import annotations

import os
import random
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import numpy as np
import torch

#: Is told the function, how many bytes it asks for, and where the call stands; gives them, or None: the system's own.
Asked = Callable[[str, int, FrameType], bytes | None]
#: Is told a seed, and where the call stands.
Seeded = Callable[[Any, FrameType], None]

_seed_of_python = random.Random.seed


def _not_told(_seed: Any, _frame: FrameType) -> None:
    """Of seeds."""


def substitutes(asked: Asked, seeded: Seeded = _not_told) -> dict[Any, Any]:
    """Each function, and what takes its place. ``random.Random()`` needs `seeding_watched` as well."""

    def urandom(size: int) -> bytes:
        given = asked("os.urandom", size, sys._getframe(1))
        return os_urandom(size) if given is None else given

    def getrandom(size: int, flags: int = 0) -> bytes:  # noqa: ARG001
        given = asked("os.getrandom", size, sys._getframe(1))
        return os_urandom(size) if given is None else given

    def uuid1(*arguments: Any, **options: Any) -> uuid.UUID:
        given = asked("uuid.uuid1", 16, sys._getframe(1))
        return uuid_uuid1(*arguments, **options) if given is None else uuid.UUID(bytes=given, version=1)

    def torch_seed() -> int:
        given = asked("torch.seed", 7, sys._getframe(1))
        if given is None:
            return torch_seed_itself()
        number = int.from_bytes(given, "little")
        torch.default_generator.manual_seed(number)
        return number

    def seeding(function: Callable[..., Any]) -> Callable[..., Any]:
        def seed(*arguments: Any, **options: Any) -> Any:
            for given in (*arguments, *options.values()):
                seeded(given, sys._getframe(1))
            return function(*arguments, **options)

        seed.__name__ = function.__name__
        return seed

    def seed_python(a: Any = None, version: int = 2) -> None:
        seed_itself(_seed_for_python(a, asked, seeded, sys._getframe(1)), version)

    # Kept in variables, which nothing takes the place of.
    os_urandom, uuid_uuid1, torch_seed_itself, seed_itself = os.urandom, uuid.uuid1, torch.seed, random.seed
    found = {os.urandom: urandom, uuid.uuid1: uuid1, torch.seed: torch_seed, random.seed: seed_python}
    if hasattr(os, "getrandom"):
        found[os.getrandom] = getrandom
    return {**found, **{each: seeding(each) for each in (np.random.default_rng, np.random.seed, torch.manual_seed)}}


@contextmanager
def seeding_watched(asked: Asked, seeded: Seeded = _not_told) -> Iterator[None]:
    """Inside, ``random.Random()`` asks too. It asks the system in C, where only its method can be replaced."""

    def seed(generator: random.Random, a: Any = None, version: int = 2) -> None:
        _seed_of_python(generator, _seed_for_python(a, asked, seeded, sys._getframe(1)), version)

    random.Random.seed = seed  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        random.Random.seed = _seed_of_python  # type: ignore[method-assign]


def _seed_for_python(a: Any, asked: Asked, seeded: Seeded, frame: FrameType) -> Any:
    if a is None:
        return asked("random.Random", 32, frame)
    seeded(a, frame)
    return a
