"""A patch of a case as a lazy volume: nothing of it is read before a transform asks for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from detaug.nnunet.loading.case_files import reading
from detaug.transforms.building.workspace import LazyVolume


class CasePatch(LazyVolume):
    """A box of one or more stored arrays, their channels behind each other; what lies outside of the case is padding.

    Args:
        stored: ``blosc2.NDArray``s (C, X, Y, Z) or (X, Y, Z) of equal spatial extents.
        starts, extents: first voxel of the box in the case, which may be negative, and voxels along each axis.
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
        array = np.full(
            (self.shape[0], *(b - a for a, b in zip(starts, stops, strict=True))), self._padding, self.dtype
        )
        whole = array
        if self._flat:
            starts, stops, whole = [0, *starts], [1, *stops], array[:, None]
        space = self._stored[0].shape[-3:]
        first = [own + start for own, start in zip(self._starts, starts, strict=True)]
        last = [own + stop for own, stop in zip(self._starts, stops, strict=True)]
        lows = [min(max(0, a), n) for a, n in zip(first, space, strict=True)]
        highs = [max(low, min(n, b)) for low, b, n in zip(lows, last, space, strict=True)]
        if all(low < high for low, high in zip(lows, highs, strict=True)):
            box = tuple(map(slice, lows, highs))
            within = tuple(slice(low - a, high - a) for low, high, a in zip(lows, highs, first, strict=True))
            channel = 0
            for stored, count in zip(self._stored, self._channels, strict=True):
                with reading(stored.schunk.urlpath):
                    whole[(slice(channel, channel + count), *within)] = stored[(..., *box)]
                channel += count
        return array
