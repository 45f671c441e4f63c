"""batchgenerators' compositions, whose transforms can be looked at one by one while they are applied."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from detaug.transforms.compose import RandomApply
from detaug.transforms.foreign import ForeignTransform

#: Module, class, and the method that hands a dictionary from transform to transform.
_COMPOSITIONS = (
    ("batchgenerators.transforms.abstract_transforms", "Compose", "__call__"),
    ("batchgeneratorsv2.transforms.utils.compose", "ComposeTransforms", "apply"),
    ("batchgeneratorsv2.transforms.utils.compose", "TimedComposeTransforms", "apply"),
)


@contextmanager
def compositions_through(replaced: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Iterator[None]:
    """Inside, ``replaced(method)`` is called in place of the method with which a composition applies its transforms."""
    found = []
    try:
        for module, name, method in _COMPOSITIONS:
            kind = getattr(sys.modules.get(module), name, None)
            if kind is not None:
                found.append((kind, method, vars(kind)[method]))
                setattr(kind, method, replaced(vars(kind)[method]))
        yield
    finally:
        for kind, method, original in found:
            setattr(kind, method, original)


def is_composition(transform: Any) -> bool:
    """Whether it is one of these, perhaps within one that is applied with a probability."""
    inner = getattr(transform, "transform", transform)
    kinds = [getattr(sys.modules.get(module), name, None) for module, name, _ in _COMPOSITIONS]
    return any(kind is not None and isinstance(inner, kind) for kind in kinds)


def name_of(transform: Any) -> str:
    """The class of a transform, or of the one within what applies it with a probability."""
    within = isinstance(transform, (ForeignTransform, RandomApply)) or type(transform).__name__ in (
        "RandomTransform",
        "RndTransform",
    )
    return type(transform.transform if within else transform).__name__
