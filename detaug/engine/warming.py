"""Warming up what a pipeline compiles, once and before there are workers."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from detaug.sources.misuse import wrapped

#: Where compositions and loaders of all libraries keep their transforms.
_INNER = ("transforms", "transform", "list_of_transforms")


def warm_up(transform: Any, loader: Any) -> None:
    """Call ``warm_up()`` of the transforms that have one: detaug's compile their kernels, or load them from the disk. Forked
    workers inherit the compiled code, others find it in the cache on disk; so no worker ever compiles.

    Args:
        transform: the batches' transform, or a composition of several in any library's class.
        loader: its attributes are searched as well, for nnU-Net's loader transforms each sample itself. Its own
            ``warm_up``, if there is one, is not called: it may mean something else.
    """
    found, seen = [*_warmable(transform, set())], set[int]()
    for part in wrapped(loader):
        for value in list(getattr(part, "__dict__", {}).values()):
            found += _warmable(value, seen)
    transforms = sys.modules.get(
        "detaug.transforms.building.base"
    )  # absent: there is none of detaug's
    if transforms is not None:
        from detaug.kernels.ahead import compile_ahead

        native = [each for each in found if isinstance(each, transforms.Transform)]
        compile_ahead(kernel for each in native for kernel in each.kernels)
    for each in found:
        each.warm_up()


def _warmable(value: Any, seen: set[int]) -> Iterator[Any]:
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, (list, tuple)):
        if value and callable(value[0]):  # a list of data may be very long
            for each in value:
                yield from _warmable(each, seen)
    elif callable(getattr(type(value), "warm_up", None)):
        yield value
    elif callable(value) and not isinstance(value, type):
        inner = getattr(value, "__dict__", {})
        for name in _INNER:
            if name in inner:
                yield from _warmable(inner[name], seen)
