"""Memory for a batch's large arrays, which lies where the batch will travel: `empty`.

A worker says who has such memory (`allocate_with`); in every other process, and for small arrays,
it is NumPy's.
"""

from __future__ import annotations

import math
import operator
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, SupportsIndex

import numpy as np

Bytes = np.ndarray[Any, np.dtype[np.uint8]]

#: Arrays below this size (bytes) are not worth a slot: a batch of them travels in a message.
SMALLEST = 16_384


class _Allocator(threading.local):
    take: Callable[[int], Bytes | None] | None = None


_allocator = _Allocator()


def allocate_with(take: Callable[[int], Bytes | None] | None) -> None:
    """From now on this thread's `empty` asks `take` for so many bytes, which begin at a multiple of
    64; it may have none. None: NumPy's memory, as elsewhere.
    """
    _allocator.take = take


@contextmanager
def ordinary_memory() -> Iterator[None]:
    """Inside, this thread's `empty` gives NumPy's memory: what is made there does not travel."""
    take, _allocator.take = _allocator.take, None
    try:
        yield
    finally:
        _allocator.take = take


def empty(
    shape: SupportsIndex | Iterable[SupportsIndex], dtype: Any = np.float32
) -> np.ndarray[Any, Any]:
    """See `detaug.seeding.current.Current.empty`."""
    sides = tuple(map(operator.index, [shape] if isinstance(shape, SupportsIndex) else shape))
    kind: np.dtype[Any] = np.dtype(dtype)
    size, take = math.prod(sides) * kind.itemsize, _allocator.take
    if (
        take is None
        or size < SMALLEST
        or min(sides) < 0
        or kind.hasobject
        or (memory := take(size)) is None
    ):
        return np.empty(sides, kind)
    return memory.view(kind).reshape(sides)
