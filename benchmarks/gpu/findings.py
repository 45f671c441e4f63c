"""What the parts are given, and what they yield."""

from __future__ import annotations

import importlib.util
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


class NotHere(Exception):
    """A package or a device that a part needs is not here; the message names it."""


@dataclass(frozen=True)
class Finding:
    """One result of a part.

    Attributes:
        name: what was tried; unique in its part.
        text: the result in words, for people.
        values: the result in numbers, for JSON.
        is_as_promised: False if it contradicts what detaug promises.
    """

    name: str
    text: str
    values: dict[str, Any] = field(default_factory=dict)
    is_as_promised: bool = True


@dataclass(frozen=True)
class Bench:
    """What a part runs with.

    Attributes:
        device: ``cuda`` or ``cpu``.
        folder: of its own, for data sets and logs.
        deadline: reading of `time.monotonic` by which the part should be over.
        quick: the short form: small and few, which shows that it runs.
    """

    device: str
    folder: Path
    deadline: float
    quick: bool = False

    @property
    def seconds_left(self) -> float:
        """Until the deadline, at least 0."""
        return max(0.0, self.deadline - time.monotonic())


def require(*modules: str) -> None:
    """Raise `NotHere` unless all of these can be imported."""
    missing = [module for module in modules if importlib.util.find_spec(module) is None]
    if missing:
        raise NotHere(", ".join(missing))
