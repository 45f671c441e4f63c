"""A patch of a case as a lazy volume: nothing of it is read before a transform asks for it."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from detaug.nnunet.loading.case_files import reading
from detaug.transforms.building.workspace import Between, LazyVolume

_lent = threading.local()  # memory of the last boxes, one of each dtype


class CasePatch(LazyVolume):
    """A box of one or more stored arrays, their channels behind each other; what lies outside of
    the case is padding.

    Args:
        stored: ``blosc2.NDArray``s (C, X, Y, Z) or (X, Y, Z) of equal spatial extents.
        starts, extents: first voxel of the box in the case, which may be negative, and voxels along
            each axis.
        flat: the box is one plane thick, and that axis is left out.
    """

    def __init__(
        self,
        stored: Sequence[Any],
        starts: Sequence[int],
        extents: Sequence[int],
        padding: float,
        dtype: type[np.generic],
        flat: bool = False,
    ) -> None:
        self._stored = stored
        self._starts, self._padding, self._flat = tuple(starts), padding, flat
        self._channels = [array.shape[0] if len(array.shape) == 4 else 1 for array in stored]
        self.shape = (sum(self._channels), *(extents[1:] if flat else extents))
        self.dtype = np.dtype(dtype)

    def read(self, starts: Sequence[int], stops: Sequence[int]) -> np.ndarray:
        return self._read_into(np.empty(self._extents(starts, stops), self.dtype), starts, stops)

    def lend(self, starts: Sequence[int], stops: Sequence[int], between: Between) -> np.ndarray:
        # A new array of 34 MB, a turned patch's box, costs as much as reading it: the system clears
        # it page by page.
        extents = self._extents(starts, stops)
        size = math.prod(extents)
        memory = vars(_lent).get(self.dtype.char)
        if memory is None or len(memory) < size:
            memory = np.empty(size, self.dtype)
            setattr(_lent, self.dtype.char, memory)
        array = memory[:size].reshape(extents)
        if self._flat:
            return self._read_into(array, starts, stops)
        thickness, first = self._stored[0].blocks[-3], starts[0]  # a block is read as a whole
        while first < stops[0]:
            last = min(stops[0], first + thickness - (first + self._starts[0]) % thickness)
            lows, highs = between(first, last)
            if lows != highs:
                box = (
                    slice(low - a, high - a)
                    for low, high, a in zip(lows, highs, starts, strict=True)
                )
                self._read_into(array[(slice(None), *box)], lows, highs)
            first = last
        return array

    def _extents(self, starts: Sequence[int], stops: Sequence[int]) -> tuple[int, ...]:
        return (self.shape[0], *(b - a for a, b in zip(starts, stops, strict=True)))

    def _read_into(
        self, array: np.ndarray, starts: Sequence[int], stops: Sequence[int]
    ) -> np.ndarray:
        whole = array
        if self._flat:
            starts, stops, whole = [0, *starts], [1, *stops], array[:, None]
        space = self._stored[0].shape[-3:]
        first = [own + start for own, start in zip(self._starts, starts, strict=True)]
        last = [own + stop for own, stop in zip(self._starts, stops, strict=True)]
        lows = [min(max(0, a), n) for a, n in zip(first, space, strict=True)]
        highs = [max(low, min(n, b)) for low, b, n in zip(lows, last, space, strict=True)]
        if (lows, highs) != (first, last):
            array.fill(self._padding)
        if all(low < high for low, high in zip(lows, highs, strict=True)):
            within = tuple(
                slice(low - a, high - a) for low, high, a in zip(lows, highs, first, strict=True)
            )
            channel = 0
            for stored, count in zip(self._stored, self._channels, strict=True):
                with reading(stored.schunk.urlpath):
                    _copy_box(
                        stored, lows, highs, whole[(slice(channel, channel + count), *within)]
                    )
                channel += count
        return array


def _copy_box(stored: Any, lows: Sequence[int], highs: Sequence[int], array: np.ndarray) -> None:
    """A box of what is stored into an array (C, *extents): slicing in Python's way takes twice as
    long for a plane.
    """
    bounds = (tuple(lows), tuple(highs))
    if len(stored.shape) == 4:
        bounds = (0, *lows), (len(array), *highs)
    extents = [b - a for a, b in zip(*bounds, strict=True)]
    if array.dtype == stored.dtype and array.flags.c_contiguous:
        stored.get_slice_numpy(array.reshape(extents), bounds)
    else:
        part = np.empty(extents, stored.dtype)
        stored.get_slice_numpy(part, bounds)
        array[...] = part
