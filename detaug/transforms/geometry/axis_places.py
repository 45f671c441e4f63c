"""Patches that are scaled and shifted, but not turned: along each axis, voxels lie where their number along it says."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from detaug.kernels.labels import pick
from detaug.kernels.separable import interpolate_axes
from detaug.transforms.building.checks import UNSIGNED

#: The kernel for each mode; a mode without one is resampled voxel by voxel.
KERNELS = {"nearest": pick, "bilinear": interpolate_axes}


@dataclass(frozen=True)
class AxisPlaces:
    """Places of a patch's voxels along each of three axes of the source, all within it.

    Attributes:
        places: one float64 array for each axis, in voxels of the source.
        space: the source's extents.
    """

    places: tuple[np.ndarray, ...]
    space: tuple[int, ...]

    @classmethod
    def of(
        cls, matrix: np.ndarray, offset: np.ndarray, space: Iterable[int], patch: Iterable[int]
    ) -> AxisPlaces | None:
        """Those of a map (see `detaug.kernels.coordinates`); None where it turns axes, or leads out of the source."""
        if np.count_nonzero(matrix) > np.count_nonzero(matrix.diagonal()):
            return None
        extents = tuple(int(n) for n in space)
        made = []
        for axis, (size, extent) in enumerate(zip(extents, patch, strict=True)):
            i, j, k = (np.arange(extent, dtype=np.float64) if a == axis else 0.0 for a in range(3))
            row = matrix[axis]
            # in the order of the kernels, so that it is rounded alike
            places = np.asarray((offset[axis] + (row[0] * i + row[1] * j)) + k * row[2])
            if not (places.min() >= 0 and places.max() <= size - 1):
                return None
            made.append(places)
        return cls(tuple(made), extents)

    def hold(self, mode: str, border: str) -> bool:
        """Whether a mode is one of those here, and gives the same as it does for any map."""
        flat = self.space[0] == 1
        has_pairs = all(n > 1 for n in self.space[flat:]) and math.prod(self.space) < 2**31
        return border != "reflection" and (mode == "nearest" or (mode == "bilinear" and has_pairs))

    def resample(self, source: np.ndarray, out: np.ndarray, before: Sequence[int], mode: str) -> None:
        """Fill a patch (C, X, Y, Z) from a window of the source that begins at voxel ``before``; linearly if it is float32."""
        if mode == "nearest":
            # as `detaug.kernels.coordinates.nearest_voxel` has it
            rows = [np.rint(each).astype(np.int64) - start for each, start in zip(self.places, before, strict=True)]
            bits = UNSIGNED[source.itemsize]
            pick(source.view(bits), *rows, out.view(bits))
            return
        x, y, z = (self._pairs(axis) for axis in range(3))
        flat = self.space[0] == 1
        interpolate_axes(source, out, x[0] - before[0], x[1], y[0] - before[1], y[1], z[0] - before[2], z[1], flat)

    def _pairs(self, axis: int) -> tuple[np.ndarray, np.ndarray]:
        """The lower neighbour of each place, int64, and how far from there it lies, float32."""
        places = self.places[axis]
        low = np.minimum(places.astype(np.int64), max(self.space[axis] - 2, 0))
        return low, (places - low).astype(np.float32)
