"""Compilation of a pipeline's kernels, once and before workers start."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from detaug.objects.walking import Edge, attributes_of, walk
from detaug.pipeline.sources.argument_hints import wrapped

#: Attributes in which compositions and loaders of other libraries keep their transforms.
_INNER = ("transforms", "transform", "list_of_transforms")


def warm_up(transform: Any, loader: Any) -> None:
    """Call ``warm_up()`` of each transform that has it, so that workers compile nothing.

    detaug's transforms compile their kernels, or load them from the cache on disk. Forked workers
    inherit the compiled code; other workers load it from the cache.

    Args:
        transform: the transform of batches, or a composition of any library.
        loader: its attributes are searched for transforms too, since nnU-Net's loader transforms
            each sample itself. Its own ``warm_up`` is not called, as it may do something else.
    """
    roots: list[Edge] = [("transform", transform)]
    # Data sets may wrap each other, as torch's Subset does; any may have transforms of samples.
    for part in wrapped(loader):
        roots += (attributes_of(part) or {}).items()
    transforms = []
    for _, value in walk(roots, parts=_transforms_in):
        if _has_warm_up(value):
            transforms.append(value)
    # All kernels are compiled side by side first: each `warm_up` would compile its own in turn.
    _compile_kernels(transforms)
    for item in transforms:
        item.warm_up()


def _compile_kernels(transforms: list[Any]) -> None:
    """Compile the kernels of detaug's own transforms side by side."""
    base = sys.modules.get("detaug.transforms.building.base")
    if base is None:
        # No transform of detaug's can be among them, and Numba need not be imported.
        return
    from detaug.kernels.ahead import compile_ahead

    kernels: list[Any] = []
    for item in transforms:
        if isinstance(item, base.Transform):
            kernels.extend(item.kernels)
    compile_ahead(kernels)


def _has_warm_up(value: Any) -> bool:
    return callable(getattr(type(value), "warm_up", None))


def _transforms_in(path: str, value: Any) -> Iterator[Edge]:
    """Yield the transforms in a composition; one with a ``warm_up`` warms up its own."""
    if isinstance(value, (list, tuple)):
        # A list of data may be very long, so that only its first entry is looked at.
        if value and callable(value[0]):
            for index, item in enumerate(value):
                yield f"{path}[{index}]", item
    elif callable(value) and not isinstance(value, type) and not _has_warm_up(value):
        attributes = attributes_of(value) or {}
        for name in _INNER:
            if name in attributes:
                yield f"{path}.{name}", attributes[name]
