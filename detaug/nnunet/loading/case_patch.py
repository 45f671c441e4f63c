"""A patch of a case as a lazy volume: nothing of it is read before a transform asks for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from detaug.transforms import buffers
from detaug.transforms.lazy_volumes import LazyVolume


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
        extents = [b - a for a, b in zip(first, last, strict=True)]
        whole = lows == first and highs == last
        if whole and len(self._stored) == 1:
            array = self._sliced(self._stored[0], box)
        else:
            array = buffers.empty((sum(self._channels), *extents), self.dtype)
            if not whole:
                array[...] = self._padding
            inside = tuple(slice(low - a, high - a) for low, high, a in zip(lows, highs, first, strict=True))
            channel = 0
            for stored, count in zip(self._stored, self._channels, strict=True):
                if all(low < high for low, high in zip(lows, highs, strict=True)):
                    array[(slice(channel, channel + count), *inside)] = self._sliced(stored, box)
                channel += count
        return array.reshape(len(array), *extents[1:]) if self._flat else array

    def _sliced(self, stored: Any, box: tuple[slice, ...]) -> np.ndarray:
        """(C, *box), C-contiguous, of this volume's dtype, and nobody else's."""
        bare = len(stored.shape) == 3
        if not bare:
            box = (slice(0, stored.shape[0]), *box)
        if hasattr(stored, "get_slice_numpy"):
            # a compressed array, of which slicing in Python's way takes twice as long for a plane
            part = buffers.empty([each.stop - each.start for each in box], stored.dtype)
            stored.get_slice_numpy(part, (tuple(each.start for each in box), tuple(each.stop for each in box)))
        else:
            part = stored[box]
        array = np.ascontiguousarray(part[None] if bare else part, dtype=self.dtype)
        # An array that is mapped gives views of its file.
        return array.copy() if isinstance(stored, np.ndarray) and np.may_share_memory(array, part) else array
