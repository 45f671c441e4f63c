"""A patch's map into its source: where each of its voxels lies, and what is there."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np

from detaug.kernels import coordinates
from detaug.kernels.cubic import resample_cubic
from detaug.kernels.label_resampling import resample_labels, resample_wide_labels
from detaug.kernels.resampling import resample_images, resample_nearest
from detaug.transforms.building.affine import NO_DISPLACEMENT, Matrix, applied, identity
from detaug.transforms.geometry.elastic import displacement

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

# Two voxels more than the neighbours that a cubic kernel has: an integer's worth of room for
# rounding.
_REACH = 4


class PatchMap:
    """Patch voxel i lies at ``matrix (i + displacement(i)) + offset`` in voxels of the source.

    Args:
        space: the source's spatial shape, two or three numbers.
        patch_size: the patch's.
        affine: rotation and scaling about the middle, or None.
        elastic: arguments of `displacement` (``key``, ``sigmas``, ``magnitudes``), or None.
        center: where the patch's middle lies, in voxels from the source's first edge (n / 2 is the
            middle of n voxels).
        center_deformation: take the mean displacement out.
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
        center_deformation: bool = True,
        align_corners: bool = False,
    ) -> None:
        self._space, self._patch = tuple(space), tuple(patch_size)
        dims = len(self._space)
        matrix = affine if affine is not None else identity(dims)
        self._volume = (*(1,) * (3 - dims), *self._patch)
        self._field, displaced = NO_DISPLACEMENT, [0.0] * dims
        middle = [(n - 1) / 2 for n in self._patch]
        if elastic is not None:
            self._field, means = displacement(patch_size, **elastic)
            displaced = [max(abs(most), 1e-8) for most in elastic["magnitudes"]]
            if center_deformation:
                middle = [m + mean for m, mean in zip(middle, means, strict=True)]
        back = applied(matrix, middle)
        offset = [c - n / 2 - b for c, n, b in zip(center, self._space, back, strict=True)]
        if align_corners:
            # grid_sample then spreads the source's n voxel edges over its n - 1 steps between
            # centres
            shrink = [(n - 1) / n for n in self._space]
            matrix = [[value * s for value in row] for row, s in zip(matrix, shrink, strict=True)]
            offset = [value * s for value, s in zip(offset, shrink, strict=True)]
        self._matrix = [list(map(float, row)) for row in matrix]
        self._offset = [value + (n - 1) / 2 for value, n in zip(offset, self._space, strict=True)]
        bent = [
            sum(abs(v) * most for v, most in zip(row, displaced, strict=True))
            for row in self._matrix
        ]
        self._reach = [each + _REACH for each in bent]

    def region(self) -> tuple[list[int], list[int]]:
        """Return the box of the source outside of which no voxel is read.

        Returns:
            Its first voxel and its last one (excluded).
        """
        lows, highs = [], []
        for row, offset in zip(self._matrix, self._offset, strict=True):
            extents = [value * (size - 1) for value, size in zip(row, self._patch, strict=True)]
            lows.append(offset + sum(min(0.0, e) for e in extents))
            highs.append(offset + sum(max(0.0, e) for e in extents))
        return self._around(lows, highs)

    def between(self, first: int, last: int) -> tuple[list[int], list[int]]:
        """Return the part of `region` from which voxels of planes ``first`` to ``last`` are read.

        ``last`` is excluded. Where no voxel is read, both corners are the same.
        """
        # A point beyond the source may be brought back to its outermost plane, and draws on those
        # next to it.
        low = first - self._reach[0] if first > self._reach[0] else -math.inf
        high = last - 1 + self._reach[0] if last + self._reach[0] < self._space[0] else math.inf
        one, way, length = self._lines
        ends = (
            one + np.clip([(low - one[:, :1]) / length, (high - one[:, :1]) / length], 0, 1) * way
        )
        near = ends[:, (ends[1, :, 0] >= low) & (ends[0, :, 0] <= high)]
        if near.size == 0:
            return [first], [first]
        lows, highs = self._around(near.min((0, 1)), near.max((0, 1)))
        return [first, *lows[1:]], [last, *highs[1:]]

    @cached_property
    def _lines(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Lines between the patch's corners: first ends, ways to the others, and how long these are
        along the first axis.

        What planes draw on is a convex body, whose own corners are on such lines.
        """
        corners = (
            np.array([*product(*((0, n - 1) for n in self._patch))]) @ np.transpose(self._matrix)
            + self._offset
        )
        one, other = (
            corners[each] for each in np.triu_indices(len(corners))
        )  # also of each corner with itself
        return one, other - one, np.where(one[:, :1] == other[:, :1], 1, other[:, :1] - one[:, :1])

    def _around(self, lows: Sequence[float], highs: Sequence[float]) -> tuple[list[int], list[int]]:
        """Return the box of the source's voxels that are read for points in a box.

        Points may be brought back to the border.
        """
        starts, stops = [], []
        for n, reach, low, high in zip(self._space, self._reach, lows, highs, strict=True):
            starts.append(max(0, math.floor(min(max(low, 0), n - 1) - reach)))
            stops.append(min(n, math.ceil(min(max(high, 0), n - 1) + reach) + 1))
        return starts, stops

    def image(
        self, source: np.ndarray, mode: str, value: float, window: Window | None = None
    ) -> np.ndarray:
        """Return the patch of an image.

        Args:
            source: (C, *space) float32.
            mode: one of `IMAGE_KERNELS`.
            value: what lies outside.
            window: where the array is that part of the source only. It must hold `region`.

        Returns:
            (C, *patch) float32.
        """
        patch = np.empty((len(source), *self._volume), np.float32)
        arguments = (source.reshape(len(source), -1), patch, *self._where(window))
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
        window: Window | None = None,
    ) -> np.ndarray:
        """Return the patch of labels.

        Args:
            source: (C, *space).
            mode: one of `LABEL_KERNELS`.
            value, window: as in `image`.
            dtype: int16 or int32, which holds all labels and the value.

        Returns:
            (C, *patch) of the source's dtype.
        """
        labels = np.ascontiguousarray(source, dtype)
        patch = np.empty((len(source), *self._volume), dtype)
        where = self._where(window)
        arguments = (labels.reshape(len(labels), -1), patch, *where, dtype.type(value))
        if mode == "nearest":
            resample_nearest(*arguments)
        elif dtype == np.int16:
            resample_labels(*arguments, self._is_flat)
        else:
            resample_wide_labels(*arguments, self._is_flat)
        return patch.reshape(len(patch), *self._patch).astype(source.dtype, copy=False)

    @property
    def _is_flat(self) -> bool:
        return len(self._space) == 2

    def _where(self, window: Window | None) -> tuple[Any, ...]:
        lift = 3 - len(self._space)
        starts, extents = window if window is not None else ([0] * len(self._space), self._space)
        shape = coordinates.layout(
            (*(1,) * lift, *self._space), (*(0,) * lift, *starts), (*(1,) * lift, *extents)
        )
        matrix = np.eye(3)
        matrix[lift:, lift:] = self._matrix
        return shape, matrix, np.array([0.0] * lift + self._offset), self._field
