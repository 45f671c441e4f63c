"""Memory for a batch's large arrays: the block in which the batch will be sent.

A worker sets the allocator of such memory (`allocate_with`). In every other process, and for small
arrays, it is NumPy's memory.
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

#: Bytes. Smaller arrays are NumPy's, and copied when the batch is sent: that costs next to nothing.
SMALLEST = 16_384


class _Allocator(threading.local):
    """The allocator of each thread."""

    allocate: Callable[[int], Bytes | None] | None = None


_allocator = _Allocator()


def allocate_with(allocate: Callable[[int], Bytes | None] | None) -> None:
    """From now on, have this thread's `empty` ask `allocate` for memory.

    Args:
        allocate: returns that number of bytes, which begin at a multiple of 64, or None. None:
            NumPy's memory, as in other threads.
    """
    _allocator.allocate = allocate


@contextmanager
def ordinary_memory() -> Iterator[None]:
    """Have this thread's `empty` return NumPy's memory, inside the block: it does not travel."""
    allocate = _allocator.allocate
    _allocator.allocate = None
    try:
        yield
    finally:
        _allocator.allocate = allocate


def empty(
    shape: SupportsIndex | Iterable[SupportsIndex], dtype: Any = np.float32
) -> np.ndarray[Any, Any]:
    """Return an uninitialised array. Documented as `detaug.seeding.current.Current.empty`."""
    sides: tuple[int, ...]
    if isinstance(shape, SupportsIndex):
        sides = (operator.index(shape),)
    else:
        sides = tuple(operator.index(side) for side in shape)
    kind: np.dtype[Any] = np.dtype(dtype)
    size = math.prod(sides) * kind.itemsize
    allocate = _allocator.allocate
    # NumPy raises its own errors for shapes and dtypes that it refuses. An array of objects holds
    # references, which mean nothing in another process.
    if allocate is None or size < SMALLEST or min(sides) < 0 or kind.hasobject:
        return np.empty(sides, kind)
    memory = allocate(size)
    if memory is None:
        return np.empty(sides, kind)
    return memory.view(kind).reshape(sides)
