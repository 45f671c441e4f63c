"""Draws from a Generator that have the same result under every supported NumPy.

NumPy promises stable streams for bit generators only (NEP 19). `Generator.random` is the one method
used here: a double from the upper 53 bits of one 64-bit word. All else is arithmetic on it.
"""

from __future__ import annotations

import inspect
import math
import pickle
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
from numpy.random import Generator

from detaug.kernels.scalars import cosine, natural_log
from detaug.seeding.current import is_making

T = TypeVar("T")


class NoNumber(ValueError):
    """A user's callable returned no finite number; ``args`` are the callable and its result."""


#: A number, a range (low, high) to draw from uniformly, or a callable that returns the number.
RandomScalar = float | tuple[float, float] | Callable[..., float]


def uniform(rng: Generator, low: float = 0.0, high: float = 1.0) -> float:
    """Draw a number from low (included) to high (excluded), uniformly."""
    return low + (high - low) * float(rng.random())


def happens(rng: Generator, probability: float) -> bool:
    """Return True with this probability: never at 0, always at 1. One draw in any case."""
    return float(rng.random()) < probability


def flags(rng: Generator, probability: float, count: int) -> list[bool]:
    """Draw `count` times, for example once per channel, whether something `happens`."""
    return [happens(rng, probability) for _ in range(count)]


def integer(rng: Generator, count: int) -> int:
    """Draw an integer from 0 to count - 1, uniformly."""
    # `random` is at most 1 - 2**-53, so that the product is never rounded up to the count.
    return int(rng.random() * count)


def integer_between(rng: Generator, low: int, high: int) -> int:
    """Draw an integer from low to high, both included; draw nothing if they are equal."""
    if low == high:
        return low
    return low + integer(rng, high - low + 1)


def integer_below(rng: Generator, low: int, high: int) -> int:
    """Draw an integer from low to high, which is excluded; return low if they are equal."""
    if low == high:
        return low
    return low + integer(rng, high - low)


def choice(rng: Generator, options: Sequence[T]) -> T:
    """Draw one of the options, each with the same probability."""
    return options[integer(rng, len(options))]


def shuffled(rng: Generator, items: Sequence[T]) -> list[T]:
    """Return a new list of the items in random order (Fisher and Yates)."""
    # By hand: NumPy may change what `Generator.permutation` draws.
    order = list(items)
    for last in range(len(order) - 1, 0, -1):
        other = integer(rng, last + 1)
        order[last], order[other] = order[other], order[last]
    return order


def channels_drawn(rng: Generator, channels: Sequence[int], probability: float) -> list[int]:
    """Return the channels whose own draw succeeds, in order."""
    return [channel for channel in channels if happens(rng, probability)]


def normal(rng: Generator, mean: float = 0.0, standard_deviation: float = 1.0) -> float:
    """Draw a normally distributed number from two uniform draws (Box and Muller).

    The second normal number that the method could give is not used.
    """
    # 1 - u is in (0, 1]: unlike u it is never 0, whose logarithm is infinite.
    radius = math.sqrt(-2.0 * natural_log(1.0 - float(rng.random())))
    angle = 2.0 * math.pi * float(rng.random())
    return mean + standard_deviation * radius * cosine(angle)


def key(rng: Generator) -> int:
    """Draw 64 bits, the key of a field of random numbers or of a child Generator."""
    # A double has only 53 random bits, so that the key is drawn in two halves of 32.
    high = int(float(rng.random()) * 2**32)
    low = int(float(rng.random()) * 2**32)
    return high << 32 | low


def generator_of(child_key: int) -> Generator:
    """Return the child Generator of a `key`."""
    return Generator(np.random.PCG64DXSM(np.random.SeedSequence(child_key)))


def scalar(rng: Generator, wanted: RandomScalar, context: Mapping[str, Any]) -> float:
    """Draw a `RandomScalar`.

    Args:
        rng: the Generator to draw from.
        wanted: a number, which is returned; a range, from which a number is drawn uniformly; or a
            callable, which is called.
        context: what a callable may take by an argument's name (``image``, ``channel``, ``dim``
            ...), in addition to ``rng``.

    Raises:
        NoNumber: a callable returned no number, or one that is not finite.

    Warns:
        UserWarning: a callable draws from ``numpy.random``, and no augmenter has seeded it.
    """
    # A fixed argument draws nothing: a number, or a range whose ends are equal.
    if isinstance(wanted, (int, float)):
        return float(wanted)
    if isinstance(wanted, (tuple, list)):
        low, high = wanted
        if low == high:
            return float(low)
        return uniform(rng, float(low), float(high))
    value = _call_with(wanted, {**context, "rng": rng})
    try:
        # `float` also takes NumPy's numbers and tensors of one element.
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise NoNumber(wanted, value) from None
    if not math.isfinite(number):
        raise NoNumber(wanted, value)
    return number


def _call_with(function: Callable[..., Any], offered: Mapping[str, Any]) -> Any:
    """Call a user's function with the offered values whose names it takes."""
    names = _keyword_names(function)
    arguments = {name: value for name, value in offered.items() if name in names}
    if is_making():
        # The augmenter has seeded the global state.
        return function(**arguments)
    before = _global_state()
    value = function(**arguments)
    if _global_state() != before:
        # Two frames up: the line that asks for the scalar.
        warnings.warn(
            f"{function!r} draws from numpy.random, NumPy's global state, which nothing seeds"
            " outside of a DeterministicAugmenter: its values do not follow from rng. Give it an"
            " argument called rng, and draw from that: lambda rng: rng.uniform(0.5, 2)",
            stacklevel=3,
        )
    return value


def for_axes(
    rng: Generator,
    wanted: RandomScalar,
    context: Mapping[str, Any],
    axes: Sequence[int],
    together: bool,
) -> list[float]:
    """Draw a `scalar` for each axis.

    Args:
        rng: the Generator to draw from.
        wanted: the scalar; a callable may take ``dim``, the axis (None if `together`).
        context: as for `scalar`.
        axes: the spatial axes.
        together: draw once, for all axes.
    """
    # The number is for all axes: a callable that asks for the axis gets None.
    if together:
        return [scalar(rng, wanted, {**context, "dim": None})] * len(axes)
    return [scalar(rng, wanted, {**context, "dim": axis}) for axis in axes]


def _global_state() -> bytes:
    """Return the state of NumPy's global generator, whatever its kind, to be compared."""
    # The whole state: its position alone is the same again after 624 words.
    return pickle.dumps(np.random.get_state(legacy=False))


def asks_for(wanted: Any, name: str) -> bool:
    """Return whether this is a callable with an argument of that name."""
    return callable(wanted) and name in _keyword_names(wanted)


def _keyword_names(function: Callable[..., Any]) -> set[str]:
    """Return the names of the arguments that can be passed by name."""
    names = set()
    for parameter in _parameters(function):
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            names.add(parameter.name)
    return names


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        return _declared(function)
    except TypeError:
        # The callable is not hashable: it cannot be cached.
        return _declared.__wrapped__(function)


# Cached because reading a signature takes as long as a small transform.
@lru_cache(maxsize=256)
def _declared(function: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        # A builtin without a signature.
        return []


@dataclass(frozen=True)
class ByPosition:
    """A callable with arguments ``names`` that calls a function with them by position."""

    function: Callable[..., float]
    names: tuple[str, ...]

    @property
    def __signature__(self) -> inspect.Signature:
        kind = inspect.Parameter.KEYWORD_ONLY
        return inspect.Signature([inspect.Parameter(name, kind) for name in self.names])

    def __call__(self, **values: Any) -> float:
        return self.function(*(values[name] for name in self.names))


#: The names by which transforms offer values to callables.
_OFFERED = {"image", "shape", "dim", "channel", "kernel", "rng"}


def asked_by_name(wanted: Any, names: tuple[str, ...]) -> Any:
    """Return a `RandomScalar` whose callable, if it is one, can be called by arguments' names.

    A callable whose required arguments all have names that transforms offer is returned as it is.
    Any other, in batchgeneratorsv2's style, gets the values of `names` by position, in that order.
    """
    if not callable(wanted):
        return wanted
    declared = _parameters(wanted)
    positional = [p for p in declared if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    required = [p for p in positional if p.default is p.empty]
    # Functions in C, NumPy's among them, may take arguments by position only.
    if all(p.name in _OFFERED and p.kind is not p.POSITIONAL_ONLY for p in required):
        return wanted
    if any(p.kind is p.VAR_POSITIONAL for p in declared):
        return ByPosition(wanted, names)
    return ByPosition(wanted, names[: len(positional)])
