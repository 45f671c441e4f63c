"""Memory for new arrays, reused once nothing holds its contents.

A fresh array of some megabytes costs more than most transforms that fill it: the operating system maps and clears its
pages one by one. Memory of arrays that are no longer referenced is kept here, a little of it, for the next ones.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

SMALLEST = 256 * 1024  # bytes; below, the allocator has pages at hand
KEPT_AT_MOST = 64 * 1024 * 1024  # bytes, per process

_lock = threading.RLock()  # a collection may run, and give memory back, while this thread takes some
_free: dict[int, list[np.ndarray]] = {}
_kept = 0


class _Loan:
    """Holds the memory of one array; every view of it, tensors included, holds this."""

    def __init__(self, memory: np.ndarray, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self._memory = memory
        self.__array_interface__ = {
            "version": 3,
            "shape": shape,
            "typestr": dtype.str,
            "data": (memory.__array_interface__["data"][0], False),
        }

    def __del__(self) -> None:
        if _give_back is not None:  # None while the interpreter shuts down
            _give_back(self._memory)


def empty(shape: Sequence[int], dtype: DTypeLike) -> np.ndarray:
    """An uninitialised, C-contiguous array, like `numpy.empty`."""
    wanted, kind = tuple(map(int, shape)), np.dtype(dtype)
    size = math.prod(wanted) * kind.itemsize
    if size < SMALLEST:
        return np.empty(wanted, kind)
    return np.asarray(_Loan(_take(size), wanted, kind))


def empty_like(array: np.ndarray) -> np.ndarray:
    """`empty` of an array's shape and dtype."""
    return empty(array.shape, array.dtype)


def _take(size: int) -> np.ndarray:
    global _kept
    with _lock:
        free = _free.get(size)
        if free:
            _kept -= size
            return free.pop()
    return np.empty(size, np.uint8)


def _give_back(memory: np.ndarray) -> None:
    global _kept
    with _lock:
        if _kept + memory.nbytes > KEPT_AT_MOST:
            _drop_others(memory.nbytes)
        if _kept + memory.nbytes <= KEPT_AT_MOST:
            _free.setdefault(memory.nbytes, []).append(memory)
            _kept += memory.nbytes


def _drop_others(size: int) -> None:
    """Free memory of other sizes, so that it does not stay after a change of the patch size."""
    global _kept
    for other in [n for n in _free if n != size]:
        _kept -= other * len(_free.pop(other))
