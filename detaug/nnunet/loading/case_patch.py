"""A patch of a case as a lazy volume: nothing of it is read before a transform asks for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from detaug.transforms.building import buffers
from detaug.transforms.building.lazy_volumes import LazyVolume


class CasePatch(LazyVolume):
    """A box of one or more stored arrays, their channels behind each other; what lies outside of the case is padding.

    Args:
        stored: arrays (C, X, Y, Z) or (X, Y, Z) of equal spatial extents, of which boxes can be sliced.
        starts: first voxel of the box in the case; may be negative.
        extents: of the box, voxels.
        padding: the value outside.
        dtype: of what is read.
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
        if self._flat:
            starts, stops = [0, *starts], [1, *stops]
        space = self._stored[0].shape[-3:]
        first = [own + start for own, start in zip(self._starts, starts, strict=True)]
        last = [own + stop for own, stop in zip(self._starts, stops, strict=True)]
        lows = [min(max(0, a), n) for a, n in zip(first, space, strict=True)]
        highs = [max(low, min(n, b)) for low, b, n in zip(lows, last, space, strict=True)]
        box = tuple(slice(low, high) for low, high in zip(lows, highs, strict=True))
        whole = lows == first and highs == last
        if whole and len(self._stored) == 1:
            array = self._sliced(self._stored[0], box)
            if array.dtype != self.dtype or isinstance(self._stored[0], np.ndarray):  # else it was made for this call
                own = buffers.empty(array.shape, self.dtype)
                own[...] = array
                array = own
        else:
            extents = [b - a for a, b in zip(first, last, strict=True)]
            array = buffers.empty((sum(self._channels), *extents), self.dtype)
            inside = [(low - a, high - a) for low, high, a in zip(lows, highs, first, strict=True)]
            if not whole:
                _fill_around(array, inside, self._padding)
            if all(low < high for low, high in inside):
                within = tuple(slice(low, high) for low, high in inside)
                channel = 0
                for stored, count in zip(self._stored, self._channels, strict=True):
                    array[(slice(channel, channel + count), *within)] = self._sliced(stored, box)
                    channel += count
        return array.reshape(len(array), *array.shape[2:]) if self._flat else array

    def _sliced(self, stored: Any, box: tuple[slice, ...]) -> np.ndarray:
        """(C, *box) of the stored dtype; a view of what is stored if that is NumPy's."""
        bare = len(stored.shape) == 3
        if not bare:
            box = (slice(0, stored.shape[0]), *box)
        if hasattr(stored, "get_slice_numpy"):
            # a compressed array, of which slicing in Python's way takes twice as long for a plane
            part = buffers.empty([each.stop - each.start for each in box], stored.dtype)
            stored.get_slice_numpy(part, (tuple(each.start for each in box), tuple(each.stop for each in box)))
        else:
            part = stored[box]
        return part[None] if bare else part


def _fill_around(array: np.ndarray, inside: Sequence[tuple[int, int]], value: float) -> None:
    """Set what lies outside of a box (first and last voxel, excluded, along each axis) in every channel."""
    if not all(low < high for low, high in inside):
        array[...] = value
        return
    rest = array
    for axis, (low, high) in enumerate(inside, start=1):
        before = (slice(None),) * axis
        rest[(*before, slice(0, low))] = value
        rest[(*before, slice(high, None))] = value
        rest = rest[(*before, slice(low, high))]
