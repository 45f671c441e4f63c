"""A patch's map into its source: where each of its voxels lies, and what is there."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import combinations_with_replacement, product
from typing import Any, NamedTuple

import numpy as np

from detaug.kernels import coordinates
from detaug.kernels.cubic import resample_cubic
from detaug.kernels.label_resampling import resample_labels, resample_wide_labels
from detaug.kernels.resampling import resample_images, resample_nearest
from detaug.transforms.building.affine import NO_DISPLACEMENT, Matrix, applied, identity
from detaug.transforms.geometry.elastic import displacement, largest_displacement

IMAGE_KERNELS = {
    "nearest": resample_nearest,
    "bilinear": resample_images,
    "bicubic": resample_cubic,
}
LABEL_KERNELS = {
    "nearest": (resample_nearest,),
    "bilinear": (resample_labels, resample_wide_labels),
}

#: The first voxel of a part of the source, and its extents.
Window = tuple[Sequence[int], Sequence[int]]

# Voxels. A cubic kernel draws on two neighbours at either side; two more leave room for the
# rounding of coordinates.
_REACH = 4


class _Lines(NamedTuple):
    """Straight lines in the source.

    Attributes:
        starts: (lines, dims), in voxels.
        ways: (lines, dims), from each line's start to its end.
        rises: (lines, 1), how far each leads along the first axis; 1 for a line within a plane,
            since positions along a line are distances from its start divided by its rise.
    """

    starts: np.ndarray
    ways: np.ndarray
    rises: np.ndarray


class PatchMap:
    """The map of a patch into its source.

    Patch voxel i lies at ``matrix (i + displacement(i)) + offset``, in voxels of the source.

    Args:
        space: the source's spatial shape, two or three numbers.
        patch_size: the patch's.
        affine: rotation and scaling about the middle, or None.
        elastic: arguments of `displacement` (``key``, ``sigmas``, ``magnitudes``), or None.
        center: where the patch's middle lies, in voxels from the source's first edge (n / 2 is the
            middle of n voxels).
        center_deformation: True: subtract the mean displacement. False: leave it in.
        align_corners: as torch's grid_sample has it.
    """

    def __init__(
        self,
        space: Sequence[int],
        patch_size: Sequence[int],
        affine: Matrix | None,
        elastic: Mapping[str, Any] | None,
        center: Sequence[float],
        *,
        center_deformation: bool,
        align_corners: bool,
    ) -> None:
        self._space = tuple(space)
        self._patch = tuple(patch_size)
        dims = len(self._space)
        # Kernels know volumes only: a plane is a volume of one slice.
        self._num_missing_axes = 3 - dims
        self._is_flat = dims == 2
        self._field = NO_DISPLACEMENT
        largest_displacements = [0.0] * dims
        middle = [(n - 1) / 2 for n in self._patch]
        if elastic is not None:
            self._field, means = displacement(patch_size, **elastic)
            largest_displacements = [largest_displacement(m) for m in elastic["magnitudes"]]
            if center_deformation:
                middle = [m + mean for m, mean in zip(middle, means, strict=True)]
        matrix = affine
        if matrix is None:
            matrix = identity(dims)
        # Each row of the matrix gives the position along one axis of the source.
        self._matrix: Matrix = []
        self._offset: list[float] = []
        # How far from its undisplaced place a voxel may draw on the source, along each axis.
        self._reach: list[float] = []
        rows = zip(matrix, center, self._space, applied(matrix, middle), strict=True)
        for row, position, n, mapped in rows:
            shrink = 1.0
            if align_corners:
                # grid_sample then maps the width of n voxels to the n - 1 steps between centres.
                shrink = (n - 1) / n
            values = [value * shrink for value in row]
            self._matrix.append(values)
            self._offset.append((position - n / 2 - mapped) * shrink + (n - 1) / 2)
            displacements = zip(values, largest_displacements, strict=True)
            reach = sum(abs(value) * most for value, most in displacements)
            self._reach.append(reach + _REACH)

    def region(self) -> tuple[list[int], list[int]]:
        """Return the box of the source outside of which no voxel is read.

        Returns:
            Its first voxel and its last one (excluded).
        """
        lows = []
        highs = []
        for row, offset in zip(self._matrix, self._offset, strict=True):
            low = offset
            high = offset
            for value, size in zip(row, self._patch, strict=True):
                extent = value * (size - 1)
                low += min(0.0, extent)
                high += max(0.0, extent)
            lows.append(low)
            highs.append(high)
        return self._box_around(lows, highs)

    def between(self, first: int, last: int) -> tuple[list[int], list[int]]:
        """Return the part of `region` from which voxels of planes ``first`` to ``last`` are read.

        ``last`` is excluded. Where no voxel is read, both corners are the same.
        """
        reach = self._reach[0]
        # A point beyond the source may be brought back to its outermost plane, and draws on those
        # next to it: from there on, all points beyond count.
        low = -math.inf
        if first > reach:
            low = first - reach
        high = math.inf
        if last + reach < self._space[0]:
            high = last - 1 + reach
        # Where each line enters and leaves these planes, as parts of its way.
        lines = self._lines_between_corners
        first_axis = lines.starts[:, :1]
        at_low = np.clip((low - first_axis) / lines.rises, 0, 1)
        at_high = np.clip((high - first_axis) / lines.rises, 0, 1)
        lowest = lines.starts + at_low * lines.ways
        highest = lines.starts + at_high * lines.ways
        is_within = (highest[:, 0] >= low) & (lowest[:, 0] <= high)
        points = np.concatenate((lowest[is_within], highest[is_within]))
        if len(points) == 0:
            return [first], [first]
        starts, stops = self._box_around(points.min(0), points.max(0))
        return [first, *starts[1:]], [last, *stops[1:]]

    @cached_property
    def _lines_between_corners(self) -> _Lines:
        """The lines between the patch's corners, as they lie in the source.

        The part of a patch between two planes is a convex body, whose corners are on such lines.
        """
        patch_corners = list(product(*[(0, n - 1) for n in self._patch]))
        # BLAS may round this differently on each CPU: it decides only about how much is read.
        corners = np.array(patch_corners) @ np.transpose(self._matrix) + self._offset
        # Pairs of a corner with itself are needed: a patch of one voxel has no others.
        pairs = list(combinations_with_replacement(range(len(corners)), 2))
        first, second = np.transpose(pairs)
        starts = corners[first]
        ways = corners[second] - starts
        rises = ways[:, :1].copy()
        rises[rises == 0] = 1
        return _Lines(starts, ways, rises)

    def _box_around(
        self, lows: Sequence[float], highs: Sequence[float]
    ) -> tuple[list[int], list[int]]:
        """Return the box of the source's voxels that are read for points in a box.

        Points may be brought back to the border.
        """
        starts = []
        stops = []
        for n, reach, low, high in zip(self._space, self._reach, lows, highs, strict=True):
            lowest = min(max(low, 0), n - 1)
            highest = min(max(high, 0), n - 1)
            starts.append(max(0, math.floor(lowest - reach)))
            stops.append(min(n, math.ceil(highest + reach) + 1))
        return starts, stops

    def image(
        self, source: np.ndarray, mode: str, value: float, window: Window | None
    ) -> np.ndarray:
        """Return the patch of an image.

        Args:
            source: (C, *space) float32.
            mode: one of `IMAGE_KERNELS`.
            value: the value of voxels outside.
            window: the array is only that part of the source, which must hold `region`. None: it
                is the whole source.

        Returns:
            (C, *patch) float32.
        """
        voxels = source.reshape(len(source), -1)
        patch = self._empty_patch(len(source), np.dtype(np.float32))
        arguments = (voxels, patch, *self._map_arguments(window))
        if mode == "nearest":
            resample_nearest(*arguments, float(value))
        elif mode == "bilinear":
            resample_images(*arguments, coordinates.CONSTANT, float(value), self._is_flat)
        else:
            resample_cubic(*arguments, float(value), self._is_flat)
        return patch.reshape(len(patch), *self._patch)

    def labels(
        self,
        source: np.ndarray,
        mode: str,
        value: float,
        dtype: np.dtype[Any],
        window: Window | None,
    ) -> np.ndarray:
        """Return the patch of labels.

        Args:
            source: (C, *space).
            mode: one of `LABEL_KERNELS`.
            value: the label of voxels outside.
            dtype: int16 or int32, which holds all labels and the value.
            window: as in `image`.

        Returns:
            (C, *patch) of the source's dtype.
        """
        labels = np.ascontiguousarray(source, dtype).reshape(len(source), -1)
        patch = self._empty_patch(len(source), dtype)
        arguments = (labels, patch, *self._map_arguments(window), dtype.type(value))
        if mode == "nearest":
            resample_nearest(*arguments)
        elif dtype == np.int16:
            resample_labels(*arguments, self._is_flat)
        else:
            resample_wide_labels(*arguments, self._is_flat)
        return patch.reshape(len(patch), *self._patch).astype(source.dtype, copy=False)

    def _empty_patch(self, num_channels: int, dtype: np.dtype[Any]) -> np.ndarray:
        """Return memory for a patch as kernels see it, (C, X, Y, Z)."""
        return np.empty((num_channels, *self._lifted(self._patch, 1)), dtype)

    def _lifted(self, values: Sequence[Any], first: Any) -> list[Any]:
        """Return one value for each of three axes; a plane's missing axis gets ``first``."""
        return [first] * self._num_missing_axes + list(values)

    def _map_arguments(self, window: Window | None) -> tuple[Any, ...]:
        """Return the arguments ``shape``, ``matrix``, ``offset``, ``displacement`` of kernels."""
        if window is None:
            # Without a window the array is the whole volume.
            window = ([0] * len(self._space), self._space)
        starts, extents = window
        shape = coordinates.layout(
            self._lifted(self._space, 1), self._lifted(starts, 0), self._lifted(extents, 1)
        )
        matrix = np.eye(3)
        matrix[self._num_missing_axes :, self._num_missing_axes :] = self._matrix
        return shape, matrix, np.array(self._lifted(self._offset, 0.0)), self._field
