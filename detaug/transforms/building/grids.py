"""Where a sample's voxels lie, for libraries whose images have a spacing and an affine.

A `VoxelGrid` stands among the shapes that params are drawn from, under `GRID`. Transforms that turn
or scale read the spacing there; `Transform.output_shapes` of those that crop, or exchange axes, has
the grid of the result.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

#: The key of the grid among shapes. No caller's array has it, because it is no name.
GRID = "voxel grid"


class VoxelGrid(NamedTuple):
    """The voxels of an array, among those of the array as it came in.

    Attributes:
        spacing: millimetres from one voxel to the next, along each spatial axis.
        steps: for each spatial axis, the way from one voxel to the next, in voxels that came in.
        start: where the first voxel lies, in voxels that came in.
    """

    spacing: tuple[float, ...]
    steps: tuple[tuple[float, ...], ...]
    start: tuple[float, ...]

    def cropped(self, first: Sequence[float]) -> VoxelGrid:
        """Return the grid whose first voxel lies at this place of the grid."""
        start = list(self.start)
        for step, distance in zip(self._own(self.steps, first), first, strict=True):
            start = [place + distance * along for place, along in zip(start, step, strict=True)]
        return self._replace(start=tuple(start))

    def rearranged(
        self, order: Sequence[int], flipped: Sequence[bool], shape: Sequence[int]
    ) -> VoxelGrid:
        """Return the grid whose axis a is axis ``order[a]``, read from its end if ``flipped[a]``.

        Args:
            shape: voxels along each axis of the grid as it is.
        """
        lead = len(self.steps) - len(order)
        spacing = list(self.spacing)
        steps = list(self.steps)
        ends = [0.0] * len(order)
        for axis, (source, is_flipped) in enumerate(zip(order, flipped, strict=True)):
            spacing[lead + axis] = self.spacing[lead + source]
            steps[lead + axis] = self.steps[lead + source]
            if is_flipped:
                steps[lead + axis] = tuple(-along for along in self.steps[lead + source])
                ends[source] = shape[source] - 1.0
        start = self.cropped(ends).start
        return VoxelGrid(tuple(spacing), tuple(steps), start)

    def axis_spacing(self, dims: int) -> tuple[float, ...]:
        """Return the spacing of an array's axes; of planes that are channels, without the first."""
        return self.spacing[len(self.spacing) - dims :]

    @staticmethod
    def _own(values: Sequence[Any], axes: Sequence[Any]) -> Sequence[Any]:
        """Return the values of the last axes: the first one may be among the channels."""
        return values[len(values) - len(axes) :]


def grid_of_affine(affine: Any, dims: int) -> VoxelGrid:
    """Return the grid of an array as it comes in.

    Args:
        affine: from voxels to millimetres, (4, 4), or (3, 3) in a plane.
        dims: how many spatial axes the array has.

    Raises:
        ValueError: an affine without a positive, finite spacing along each axis.
    """
    columns = np.asarray(affine, np.float64)[:-1, :dims]
    spacing = tuple(
        math.sqrt(sum(value * value for value in column)) for column in columns.T.tolist()
    )
    if len(spacing) != dims or not all(0.0 < length < math.inf for length in spacing):
        raise ValueError(
            f"an affine must have a positive spacing along each of {dims} axes, got {affine}"
        )
    steps = tuple(tuple(float(row == axis) for row in range(dims)) for axis in range(dims))
    return VoxelGrid(spacing, steps, (0.0,) * dims)


def affine_of_grid(affine: Any, grid: VoxelGrid) -> np.ndarray:
    """Return the affine of a grid, from that of the array that came in; float64."""
    before = np.asarray(affine, np.float64)
    dims = len(grid.spacing)
    steps = np.eye(len(before))
    steps[:dims, :dims] = np.transpose(grid.steps)
    steps[:dims, -1] = grid.start
    return before @ steps


def grid_among(shapes: Mapping[str, Any]) -> VoxelGrid | None:
    """Return the grid among shapes; None where the caller gave no affine."""
    grid: VoxelGrid | None = shapes.get(GRID)
    return grid
