"""Volumes that are read only as far as they are needed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Between = Callable[[int, int], tuple[Sequence[int], Sequence[int]]]


class LazyVolume:
    """An array (C, X, Y, Z) or (C, X, Y) that is somewhere else: in a compressed file, in part beyond an image's border.

    It may stand for ``image``, ``regression_target`` or ``segmentation`` in a sample. `SpatialTransform` and the crops
    read the part that they need; any other transform reads all of it.

    Attributes:
        shape: with the channels in front.
        dtype: of what `read` gives.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def read(self, starts: Sequence[int], stops: Sequence[int]) -> np.ndarray:
        """All channels of the voxels ``starts`` to ``stops`` (excluded), one number per spatial axis, within the shape.

        Returns:
            (C, *extents), C-contiguous, that nothing else holds.
        """
        raise NotImplementedError

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
