"""Users' callables that were written for batchgeneratorsv2, which hands them arguments by position."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

_OFFERED = {"image", "shape", "dim", "channel", "kernel", "rng"}


@dataclass(frozen=True)
class ByPosition:
    """A callable that is asked by name, for one whose arguments have other names.

    Args:
        function: takes as many arguments as there are names, in their order.
        names: what they are.
    """

    function: Callable[..., float]
    names: tuple[str, ...]

    @property
    def __signature__(self) -> inspect.Signature:
        kind = inspect.Parameter.KEYWORD_ONLY
        return inspect.Signature([inspect.Parameter(name, kind) for name in self.names])

    def __call__(self, **values: Any) -> float:
        return self.function(*(values[name] for name in self.names))


def asked_by_name(wanted: Any, names: tuple[str, ...]) -> Any:
    """A `RandomScalar` whose callable, if it is one, can be asked by name.

    One whose required arguments have names that transforms offer stays as it is. Any other gets what ``names`` say, in
    that order: batchgeneratorsv2's.
    """
    if not callable(wanted):
        return wanted
    try:
        declared = inspect.signature(wanted).parameters.values()
    except (TypeError, ValueError):  # a builtin without a signature
        return wanted
    positional = [p for p in declared if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    required = [p for p in positional if p.default is p.empty]
    takes_all = any(p.kind is p.VAR_POSITIONAL for p in declared)
    if all(p.name in _OFFERED and p.kind is not p.POSITIONAL_ONLY for p in required):
        return wanted
    return ByPosition(wanted, names if takes_all else names[: len(positional)])


def asks_for(wanted: Any, name: str) -> bool:
    """Whether this is a callable with an argument of that name."""
    if not callable(wanted):
        return False
    try:
        return name in _arguments_of_hashable(wanted)
    except TypeError:  # not hashable
        return name in _arguments(wanted)


def _arguments(function: Callable[..., Any]) -> frozenset[str]:
    try:
        return frozenset(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # a builtin without a signature
        return frozenset()


_arguments_of_hashable = lru_cache(maxsize=256)(_arguments)
