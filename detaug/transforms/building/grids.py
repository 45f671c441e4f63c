"""Voxel grids, for libraries whose images have a spacing and an affine.

A `VoxelGrid` is one of the shapes that params are drawn from, under the key `GRID`. Transforms that
rotate or scale read the spacing in it. `Transform.output_shapes` of transforms that crop, or
exchange axes, returns the grid of the result.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

#: The key of the grid among shapes. No caller's array has it, because it is no name.
GRID = "voxel grid"


class VoxelGrid(NamedTuple):
    """The positions of an array's voxels, relative to the array that the caller passed.

    Attributes:
        spacing: millimetres from one voxel to the next, along each spatial axis.
        steps: for each spatial axis, the step from one voxel to the next, in the caller's voxels.
        start: the position of the first voxel, in the caller's voxels.
    """

    spacing: tuple[float, ...]
    steps: tuple[tuple[float, ...], ...]
    start: tuple[float, ...]

    def cropped(self, first: Sequence[float]) -> VoxelGrid:
        """Return the grid whose first voxel is at this position, in voxels of the grid."""
        # Where planes are channels, `first` lacks the volume's first axis, which is not cropped.
        lead = len(self.steps) - len(first)
        start = list(self.start)
        for step, distance in zip(self.steps[lead:], first, strict=True):
            for axis, component in enumerate(step):
                start[axis] += distance * component
        return self._replace(start=tuple(start))

    def rearranged(
        self, order: Sequence[int], flipped: Sequence[bool], shape: Sequence[int]
    ) -> VoxelGrid:
        """Return the grid whose axis a is axis ``order[a]``, read from its end if ``flipped[a]``.

        Args:
            order: an axis of this grid for each axis of the result.
            flipped: True for an axis of the result that is read from its end.
            shape: the number of voxels along each axis of this grid.
        """
        lead = len(self.steps) - len(order)
        spacing = list(self.spacing[:lead])
        steps = list(self.steps[:lead])
        # The result's first voxel is the last one along each axis that is flipped.
        first = [0.0] * len(order)
        for source, is_flipped in zip(order, flipped, strict=True):
            step = self.steps[lead + source]
            if is_flipped:
                step = tuple(-component for component in step)
                first[source] = shape[source] - 1.0
            spacing.append(self.spacing[lead + source])
            steps.append(step)
        return VoxelGrid(tuple(spacing), tuple(steps), self.cropped(first).start)

    def axis_spacing(self, dims: int) -> tuple[float, ...]:
        """Return the spacing of an array's axes; of planes that are channels, without the first."""
        return self.spacing[len(self.spacing) - dims :]


def grid_of_affine(affine: Any, dims: int) -> VoxelGrid:
    """Return the grid of an array as the caller passes it.

    Args:
        affine: from voxels to millimetres, (4, 4), or (3, 3) in a plane.
        dims: the number of spatial axes of the array.

    Raises:
        ValueError: an affine without a positive, finite spacing along each axis.
    """
    # The translation is left out: spacing does not depend on where the image lies.
    columns = np.asarray(affine, np.float64)[:-1, :dims]
    # The length of each column.
    spacing = tuple(_length(column) for column in columns.T.tolist())
    if len(spacing) != dims or not all(0.0 < length < math.inf for length in spacing):
        raise ValueError(
            f"an affine must have a positive spacing along each of {dims} axes, got {affine}"
        )
    steps = tuple(tuple(row) for row in np.eye(dims).tolist())
    return VoxelGrid(spacing, steps, (0.0,) * dims)


def common_grid(grids: Mapping[str, VoxelGrid], advice: str) -> VoxelGrid | None:
    """Return the grid of arrays that are transformed together: the first one; None without any.

    Args:
        grids: by the arrays' names.
        advice: how to resample one of the arrays, for the error.

    Raises:
        ValueError: two of them have different spacings.
    """
    if not grids:
        return None
    first, reference = next(iter(grids.items()))
    for name, grid in grids.items():
        # Affines are often float32: equal spacings may differ in their last digits.
        if not np.allclose(grid.spacing, reference.spacing, rtol=1e-3):
            raise ValueError(
                f"images that are transformed together must have one spacing, got {first}"
                f" {reference.spacing} and {name} {grid.spacing}: resample one of them first, e.g."
                f" by {advice}"
            )
    return reference


def _length(vector: Sequence[float]) -> float:
    return math.sqrt(sum(value * value for value in vector))


def affine_of_grid(affine: Any, grid: VoxelGrid) -> np.ndarray:
    """Return the affine of a grid, float64, from the affine of the array that was passed."""
    before = np.asarray(affine, np.float64)
    dims = len(grid.spacing)
    steps = np.eye(len(before))
    steps[:dims, :dims] = np.transpose(grid.steps)
    steps[:dims, -1] = grid.start
    return before @ steps


def grid_among(shapes: Mapping[str, Any]) -> VoxelGrid | None:
    """Return the grid among shapes, or None if the caller passed no affine."""
    grid: VoxelGrid | None = shapes.get(GRID)
    return grid
