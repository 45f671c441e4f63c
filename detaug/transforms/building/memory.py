"""Where a sample's arrays come from: memory that is used again, and volumes that are read only as far as they are needed.

A fresh array of some megabytes costs more than most transforms that fill it: the operating system maps and clears its
pages one by one. Memory of arrays that are no longer referenced is kept here, a little of it, for the next ones.
"""

from __future__ import annotations

import math
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
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


Between = Callable[[int, int], tuple[Sequence[int], Sequence[int]]]


class LazyVolume(ABC):
    """An array (C, X, Y, Z) or (C, X, Y) that is somewhere else: in a compressed file, in part beyond an image's border.

    It may stand for ``image``, ``regression_target`` or ``segmentation`` in a sample. `SpatialTransform` and the crops
    read the part that they need; any other transform reads all of it.

    Attributes:
        shape: with the channels in front.
        dtype: of what `read` gives.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @abstractmethod
    def read(self, starts: Sequence[int], stops: Sequence[int]) -> np.ndarray:
        """All channels of the voxels ``starts`` to ``stops`` (excluded), one number per spatial axis, within the shape.

        Returns:
            (C, *extents), C-contiguous, that nothing else holds.
        """

    def read_parts(self, starts: Sequence[int], stops: Sequence[int], between: Between) -> np.ndarray:
        """`read`, where not all voxels will be looked at; the others may be anything.

        Args:
            between: first and last (excluded) of some planes of the box -> `starts` and `stops` of what will be looked at
                in these.
        """
        return self.read(starts, stops)

    def read_all(self) -> np.ndarray:
        """The whole array, C-contiguous, that nothing else holds."""
        return self.read([0] * (len(self.shape) - 1), self.shape[1:])

    def planes_as_channels(self) -> LazyVolume:
        """(C, X, Y, Z) as (C · X, Y, Z), channel c's plane x being number ``c · X + x``."""
        return _Planes(self)


class _Planes(LazyVolume):
    def __init__(self, volume: LazyVolume) -> None:
        channels, planes, *plane = volume.shape
        self._volume = volume
        self.shape = (channels * planes, *plane)
        self.dtype = volume.dtype

    def read(self, starts: Sequence[int], stops: Sequence[int]) -> np.ndarray:
        planes = self._volume.shape[1]
        array = self._volume.read([0, *starts], [planes, *stops])
        return array.reshape(self.shape[0], *array.shape[2:])


def read_around(volume: LazyVolume, starts: Sequence[int], stops: Sequence[int]) -> tuple[np.ndarray, list[int]]:
    """What a box and a volume have in common, at least one voxel along each axis, and where that begins.

    A box that lies outside gets the voxels of the border that are nearest to it, so that a border continued outwards
    is the same, seen from it.
    """
    space = volume.shape[1:]
    lows = [min(max(0, start), n - 1) for start, n in zip(starts, space, strict=True)]
    highs = [min(max(low + 1, stop), n) for low, stop, n in zip(lows, stops, space, strict=True)]
    return volume.read(lows, highs), lows
