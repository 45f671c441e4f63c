"""Whether arrays of one call may share memory: then none of them is written into."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import torch


def may_overlap(values: Iterable[Any]) -> bool:
    """Whether any two of the arrays among these values, or in their lists and mappings, may share a byte.

    Told from where they begin and end, so that interleaved views count as sharing.
    """
    extents = sorted(extent for value in values for extent in _extents(value))
    return any(stop > start for (_, stop), (start, _) in pairwise(extents))


def _extents(value: Any) -> Iterator[tuple[int, int]]:
    if isinstance(value, torch.Tensor):
        if value.device.type == "cpu" and value.layout == torch.strided and not value.is_nested and value.numel():
            size = value.element_size()
            yield _extent(value.data_ptr(), value.shape, [stride * size for stride in value.stride()], size)
    elif isinstance(value, np.ndarray):
        if value.size:
            yield _extent(value.__array_interface__["data"][0], value.shape, value.strides, value.itemsize)
    elif isinstance(value, (list, tuple, Mapping)):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from _extents(part)


def _extent(address: int, shape: Iterable[int], strides: Iterable[int], size: int) -> tuple[int, int]:
    reaches = [(n - 1) * stride for n, stride in zip(shape, strides, strict=True)]
    return address + sum(min(reach, 0) for reach in reaches), address + sum(max(reach, 0) for reach in reaches) + size
