"""Warming up what a pipeline compiles, once and before there are workers."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from detaug.objects.walking import Edge, attributes_of, walk
from detaug.pipeline.sources.argument_hints import wrapped

#: Where compositions and loaders of all libraries keep their transforms.
_INNER = ("transforms", "transform", "list_of_transforms")


def warm_up(transform: Any, loader: Any) -> None:
    """Call ``warm_up()`` of the transforms that have one, so that no worker ever compiles.

    detaug's transforms compile their kernels, or load them from the disk. Forked workers inherit
    the compiled code, others find it in the cache on disk.

    Args:
        transform: the batches' transform, or a composition of several in any library's class.
        loader: its attributes are searched as well, for nnU-Net's loader transforms each sample
            itself. Its own ``warm_up`` is not called: it may mean something else.
    """
    roots: list[Edge] = [("transform", transform)]
    for part in wrapped(loader):
        roots += (attributes_of(part) or {}).items()
    transforms = []
    for _, value in walk(roots, parts=_transforms_in):
        if _has_warm_up(value):
            transforms.append(value)
    base = sys.modules.get("detaug.transforms.building.base")
    if base is not None:  # a transform of detaug's may be among them
        from detaug.kernels.ahead import compile_ahead

        own = [item for item in transforms if isinstance(item, base.Transform)]
        compile_ahead(kernel for item in own for kernel in item.kernels)
    for item in transforms:
        item.warm_up()


def _has_warm_up(value: Any) -> bool:
    return callable(getattr(type(value), "warm_up", None))


def _transforms_in(path: str, value: Any) -> Iterator[Edge]:
    """Yield the transforms that a composition holds; one with a ``warm_up`` warms up its own."""
    if isinstance(value, (list, tuple)):
        # A list of data may be very long.
        if value and callable(value[0]):
            for number, item in enumerate(value):
                yield f"{path}[{number}]", item
    elif callable(value) and not isinstance(value, type) and not _has_warm_up(value):
        attributes = attributes_of(value) or {}
        for name in _INNER:
            if name in attributes:
                yield f"{path}.{name}", attributes[name]
