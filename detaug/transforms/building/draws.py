"""Draws from a Generator that every supported NumPy makes alike.

NumPy promises stable streams for bit generators only (NEP 19). `Generator.random` is the one method
used here: a double from the upper 53 bits of one 64-bit word. All else is arithmetic on it.
"""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np

from detaug.kernels.scalars import cosine, natural_log
from detaug.seeding.current import is_making

T = TypeVar("T")


class NoNumber(ValueError):
    """A user's callable gave something else than a finite number: the callable, and what it gave."""


# A number, a range (low, high) to draw from evenly, or a callable that gives the number.
RandomScalar = float | tuple[float, float] | Callable[..., float]


def uniform(rng: np.random.Generator, low: float = 0.0, high: float = 1.0) -> float:
    """An even draw from low (included) to high."""
    return low + (high - low) * float(rng.random())


def happens(rng: np.random.Generator, probability: float) -> bool:
    """True with this probability: never at 0, always at 1. One draw, whatever the probability."""
    return float(rng.random()) < probability


def integer(rng: np.random.Generator, count: int) -> int:
    """An even draw from 0 ... count - 1."""
    number = int(rng.random() * count)
    return number if number < count else count - 1


def integer_between(rng: np.random.Generator, low: int, high: int) -> int:
    """An even draw from low to high, both included; none where they are equal."""
    return low if low == high else low + integer(rng, high - low + 1)


def integer_below(rng: np.random.Generator, low: int, high: int) -> int:
    """An even draw from low to high, which is not included; none where they are equal."""
    return low if low == high else low + integer(rng, high - low)


def choice(rng: np.random.Generator, options: Sequence[T]) -> T:
    """One of the options, each as likely as the others."""
    return options[integer(rng, len(options))]


def shuffled(rng: np.random.Generator, items: Sequence[T]) -> list[T]:
    """The items in a random order, as a new list (Fisher and Yates)."""
    order = list(items)
    for last in range(len(order) - 1, 0, -1):
        other = integer(rng, last + 1)
        order[last], order[other] = order[other], order[last]
    return order


def channels_drawn(
    rng: np.random.Generator, channels: Sequence[int], probability: float
) -> list[int]:
    """The channels whose own draw succeeds, in order."""
    return [channel for channel in channels if happens(rng, probability)]


def normal(rng: np.random.Generator, mean: float = 0.0, standard_deviation: float = 1.0) -> float:
    """A normal draw (Box and Muller's transform of two even draws, the second normal is not used)."""
    radius = math.sqrt(-2.0 * natural_log(1.0 - float(rng.random())))
    return mean + standard_deviation * radius * cosine(2.0 * math.pi * float(rng.random()))


def key(rng: np.random.Generator) -> int:
    """64 bits: the key of a bulk field of random numbers, or of a child Generator."""
    return int(float(rng.random()) * 2**32) << 32 | int(float(rng.random()) * 2**32)


def generator_of(child_key: int) -> np.random.Generator:
    """The child Generator of a `key`."""
    return np.random.Generator(np.random.PCG64DXSM(np.random.SeedSequence(child_key)))


def scalar(rng: np.random.Generator, wanted: RandomScalar, context: Mapping[str, Any]) -> float:
    """Draw a `RandomScalar`: a number is itself, a range is drawn from evenly, a callable is
    called.

    Args:
        context: what a callable may ask for by the name of an argument (``image``, ``channel``,
            ``dim`` ...); ``rng`` is there as well.

    Raises:
        NoNumber: a callable gave none, or one that is not finite.

    Warns:
        UserWarning: a callable draws from ``numpy.random`` where no augmenter has seeded it.
    """
    if isinstance(wanted, (int, float)):
        return float(wanted)
    if isinstance(wanted, (tuple, list)):
        low, high = wanted
        return float(low) if low == high else uniform(rng, float(low), float(high))
    offered = {**context, "rng": rng}
    names = _names(wanted)
    before = None if is_making() else _place_in_global_state()
    value = wanted(**{name: value for name, value in offered.items() if name in names})
    if before is not None and _place_in_global_state() != before:
        warnings.warn(
            f"{wanted!r} draws from numpy.random, NumPy's global state, which nothing seeds "
            "outside of a "
            "DeterministicAugmenter: its values do not follow from rng. Give it an argument called "
            "rng, and draw from that: "
            "lambda rng: rng.uniform(0.5, 2)",
            stacklevel=2,
        )
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise NoNumber(wanted, value)
    return number


def for_axes(
    rng: np.random.Generator,
    wanted: RandomScalar,
    context: Mapping[str, Any],
    axes: Sequence[int],
    together: bool,
) -> list[float]:
    """A `scalar` for each axis, or one for all; a callable may ask for ``dim``, which is the axis,
    or None for all.
    """
    if together:
        return [scalar(rng, wanted, {**context, "dim": None})] * len(axes)
    return [scalar(rng, wanted, {**context, "dim": axis}) for axis in axes]


def _place_in_global_state() -> tuple[Any, ...]:
    state: Any = np.random.get_state(legacy=False)
    return state["state"].get("pos"), state.get("has_gauss"), state["bit_generator"]


def asks_for(wanted: Any, name: str) -> bool:
    """Whether this is a callable with an argument of that name."""
    return callable(wanted) and name in _names(wanted)


def _names(function: Callable[..., Any]) -> set[str]:
    """Of the arguments that can be passed by name."""
    return {
        each.name
        for each in _parameters(function)
        if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)
    }


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        return _declared(function)
    except TypeError:  # not hashable
        return _declared.__wrapped__(function)


@lru_cache(maxsize=256)  # to look costs as much as a small transform
def _declared(function: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # a builtin without a signature
        return []


@dataclass(frozen=True)
class ByPosition:
    """A callable that is asked for ``names``, for a function that takes them by position under
    other names.
    """

    function: Callable[..., float]
    names: tuple[str, ...]

    @property
    def __signature__(self) -> inspect.Signature:
        kind = inspect.Parameter.KEYWORD_ONLY
        return inspect.Signature([inspect.Parameter(name, kind) for name in self.names])

    def __call__(self, **values: Any) -> float:
        return self.function(*(values[name] for name in self.names))


_OFFERED = {"image", "shape", "dim", "channel", "kernel", "rng"}


def asked_by_name(wanted: Any, names: tuple[str, ...]) -> Any:
    """A `RandomScalar` whose callable, if it is one, can be asked by name.

    One whose required arguments have names that transforms offer stays as it is. Any other gets
    what ``names`` say, in that order: batchgeneratorsv2's.
    """
    if not callable(wanted):
        return wanted
    declared = _parameters(wanted)
    positional = [p for p in declared if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    required = [p for p in positional if p.default is p.empty]
    if all(p.name in _OFFERED and p.kind is not p.POSITIONAL_ONLY for p in required):
        return wanted
    takes_all = any(p.kind is p.VAR_POSITIONAL for p in declared)
    return ByPosition(wanted, names if takes_all else names[: len(positional)])
