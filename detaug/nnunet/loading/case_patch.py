"""A patch of a case as a lazy volume: nothing of it is read before a transform asks for it."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from detaug.nnunet.loading.case_files import reading
from detaug.transforms.building.workspace import Between, LazyVolume

# From a case's file to a transform:
#
#   file (.b2nd) -> blosc2: whole blocks -> array (C, *box), padding around the case -> transform
#
# A block is decompressed as a whole, however few of its voxels are wanted.

#: This thread's memory of the last boxes, by dtype.
_lent = threading.local()


class CasePatch(LazyVolume):
    """A box of one or more stored arrays, their channels one after another.

    Voxels outside of the case are padding.

    Args:
        stored: ``blosc2.NDArray``s (C, X, Y, Z) or (X, Y, Z) of equal spatial extents.
        starts, extents: first voxel of the box in the case, which may be negative, and voxels along
            each axis.
        padding: the value of voxels outside of the case.
        dtype: of the arrays that are read.
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
        self._starts = tuple(starts)
        self._padding = padding
        self._flat = flat
        self._channels = [array.shape[0] if len(array.shape) == 4 else 1 for array in stored]
        sides = extents[1:] if flat else extents
        self.shape = (sum(self._channels), *sides)
        self.dtype = np.dtype(dtype)

    def read(self, starts: Sequence[int], stops: Sequence[int]) -> np.ndarray:
        return self._read_into(np.empty(self._extents(starts, stops), self.dtype), starts, stops)

    def lend(self, starts: Sequence[int], stops: Sequence[int], between: Between) -> np.ndarray:
        # A new array of 34 MB, a turned patch's box, costs as much as reading it: the system clears
        # it page by page.
        extents = self._extents(starts, stops)
        array = _memory(math.prod(extents), self.dtype).reshape(extents)
        if self._flat:
            return self._read_into(array, starts, stops)
        # Slab by slab of stored blocks: of each slab a rotated patch needs only a part, while the
        # whole box has corners that it does not need.
        thickness = self._stored[0].blocks[-3]
        first = starts[0]
        while first < stops[0]:
            offset_in_block = (first + self._starts[0]) % thickness
            last = min(stops[0], first + thickness - offset_in_block)
            lows, highs = between(first, last)
            if lows != highs:
                box = _slices(lows, highs, starts)
                self._read_into(array[(slice(None), *box)], lows, highs)
            first = last
        return array

    def _extents(self, starts: Sequence[int], stops: Sequence[int]) -> tuple[int, ...]:
        """Return the shape of a part of the patch, with its channels."""
        sides = [stop - start for start, stop in zip(starts, stops, strict=True)]
        return (self.shape[0], *sides)

    def _read_into(
        self, array: np.ndarray, starts: Sequence[int], stops: Sequence[int]
    ) -> np.ndarray:
        """Read a part of the patch into an array (C, *extents), and return that."""
        target = array
        if self._flat:
            starts = [0, *starts]
            stops = [1, *stops]
            target = array[:, None]
        # In voxels of the case: the part, and what of it lies within the case.
        first = []
        lows = []
        highs = []
        is_padded = False
        is_outside = False
        sides = self._stored[0].shape[-3:]
        for origin, start, stop, side in zip(self._starts, starts, stops, sides, strict=True):
            low = min(max(0, origin + start), side)
            high = max(low, min(side, origin + stop))
            is_padded |= low > origin + start or high < origin + stop
            is_outside |= low == high
            first.append(origin + start)
            lows.append(low)
            highs.append(high)
        if is_padded:
            array.fill(self._padding)
        if is_outside:
            return array
        box = _slices(lows, highs, first)
        channel = 0
        for stored, count in zip(self._stored, self._channels, strict=True):
            channels = slice(channel, channel + count)
            with reading(stored.schunk.urlpath):
                _copy_box(stored, lows, highs, target[(channels, *box)])
            channel += count
        return array


def _memory(size: int, dtype: np.dtype[Any]) -> np.ndarray:
    """Return this thread's memory for an array of `size` elements; its values are arbitrary."""
    memory: np.ndarray | None = vars(_lent).get(dtype.char)
    if memory is None or len(memory) < size:
        memory = np.empty(size, dtype)
        setattr(_lent, dtype.char, memory)
    return memory[:size]


def _slices(lows: Sequence[int], highs: Sequence[int], origin: Sequence[int]) -> tuple[slice, ...]:
    """Return the slices from `lows` to `highs` of an array that begins at `origin`."""
    slices = []
    for low, high, first in zip(lows, highs, origin, strict=True):
        slices.append(slice(low - first, high - first))
    return tuple(slices)


def _copy_box(stored: Any, lows: Sequence[int], highs: Sequence[int], array: np.ndarray) -> None:
    """Copy a box of a stored array into an array (C, *extents).

    Slicing in Python's way takes twice as long for a plane.
    """
    start = tuple(lows)
    stop = tuple(highs)
    if len(stored.shape) == 4:
        start = (0, *lows)
        stop = (len(array), *highs)
    extents = [b - a for a, b in zip(start, stop, strict=True)]
    # blosc2 can write only into a contiguous array of the stored dtype.
    if array.dtype == stored.dtype and array.flags.c_contiguous:
        stored.get_slice_numpy(array.reshape(extents), (start, stop))
        return
    part = np.empty(extents, stored.dtype)
    stored.get_slice_numpy(part, (start, stop))
    array[...] = part
