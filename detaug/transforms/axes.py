"""Mirroring, quarter turns and exchange of axes: maps of the voxel grid onto itself.

They need no interpolation. All three apply to ``image``, ``regression_target`` and ``segmentation``
(of any dtype).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.random import Generator

from detaug.kernels.voxels import flip_in_place
from detaug.transforms.building import draws
from detaug.transforms.building.base import Context, Params, RandomScalar, Shapes, Transform
from detaug.transforms.building.checks import UNSIGNED, argument, axes, random_scalar
from detaug.transforms.building.gate import (
    AXES,
    VOXEL_KEYS,
    InvalidParam,
    ParamContext,
    distinct,
    for_each,
    integer,
    many,
    takes,
)
from detaug.transforms.building.grids import GRID, grid_among
from detaug.transforms.building.workspace import Workspace, in_space, spatial_shape


class AxisMap(NamedTuple):
    """A map of axes.

    Axis a of the result is axis ``order[a]`` of the source, read from its end if ``flipped[a]``.
    """

    order: tuple[int, ...]
    flipped: tuple[bool, ...]


class _AxisTransform(Transform):
    """The base of the transforms in this file; params determine an `axis_map`."""

    def axis_map(self, params: Params, dims: int) -> AxisMap:
        """Return the map that these params apply to arrays of `dims` spatial axes."""
        raise NotImplementedError

    def rearrange(self, workspace: Workspace, params: Params) -> None:
        """Apply the map of these params to all arrays of voxels."""
        dims = len(spatial_shape(workspace.shapes()))
        axis_map = self.axis_map(params, dims)
        # Nothing moves: the caller's own arrays are returned, without a copy.
        if axis_map.order == tuple(range(dims)) and not any(axis_map.flipped):
            return
        for key in VOXEL_KEYS:
            if key in workspace:
                _rearrange(workspace, key, axis_map)

    def output_shapes(self, shapes: Shapes, params: Params) -> dict[str, Any]:
        source = spatial_shape(shapes)
        axis_map = self.axis_map(params, len(source))
        announced = in_space(shapes, [source[axis] for axis in axis_map.order])
        grid = grid_among(shapes)
        if grid is not None:
            announced[GRID] = grid.rearranged(axis_map.order, axis_map.flipped, source)
        return announced

    kernels = (flip_in_place,)


class Mirror(_AxisTransform):
    """Each of the allowed axes reversed with a probability of 1/2.

    Args:
        allowed_axes: spatial axes, 0 to 2.

    Params: ``{"axes": [spatial axes]}``.

    Raises:
        ValueError: an allowed axis that the sample does not have.
    """

    def __init__(self, allowed_axes: Collection[int]) -> None:
        self.allowed_axes = axes("allowed_axes", allowed_axes)

    def draw(self, rng: Generator, shapes: Shapes, context: Context) -> Params:
        # The constructor accepts axes 0 to 2, and a plane has no axis 2.
        if max(self.allowed_axes, default=0) >= len(spatial_shape(shapes)):
            axes("allowed_axes", self.allowed_axes, 2)
        return {"axes": [axis for axis in self.allowed_axes if draws.happens(rng, 0.5)]}

    change = takes(axes=AXES)(_AxisTransform.rearrange)

    def output_shapes(self, shapes: Shapes, params: Params) -> dict[str, Any]:
        # A mirrored body lies where the body lay: the grid stays.
        return dict(shapes)

    def axis_map(self, params: Params, dims: int) -> AxisMap:
        axes_in_order = tuple(range(dims))
        return AxisMap(axes_in_order, tuple(axis in params["axes"] for axis in axes_in_order))


class Rot90(_AxisTransform):
    """Quarter turns in randomly chosen planes, one after another.

    They change the shape of an array that is not a cube.

    Args:
        num_axis_combinations: the number of turns, rounded to the nearest integer (to even at a
            half).
        num_rot_per_combination: the numbers of quarter turns to choose from.
        allowed_axes: the spatial axes; two of them are chosen for each plane, every pair with the
            same probability.

    Params: ``{"num_rot_per_combination": [quarter turns], "axis_combinations": [[axis, axis],
    ...]}``; axis 0 is that of the channels. A quarter turn goes from the first to the second axis
    of its pair, as in `numpy.rot90`.

    Raises:
        ValueError: an allowed axis that the sample does not have, fewer than two of them.
    """

    def __init__(
        self,
        num_axis_combinations: RandomScalar,
        num_rot_per_combination: Sequence[int] = (1, 2, 3),
        allowed_axes: Collection[int] = frozenset({0, 1, 2}),
    ) -> None:
        self.num_axis_combinations = random_scalar(
            "num_axis_combinations", num_axis_combinations, minimum=0
        )
        turns = argument(
            "num_rot_per_combination",
            list(num_rot_per_combination),
            many(integer(-(2**31)), least=1),
        )
        self.num_rot_per_combination = tuple(turns)
        self.allowed_axes = axes("allowed_axes", allowed_axes)
        if len(self.allowed_axes) < 2:
            raise ValueError(
                "allowed_axes must have at least two axes, which span a plane, got"
                f" {allowed_axes!r}"
            )

    def draw(self, rng: Generator, shapes: Shapes, context: Context) -> Params:
        axes("allowed_axes", self.allowed_axes, len(spatial_shape(shapes)))
        turns = []
        planes = []
        for _ in range(round(draws.scalar(rng, self.num_axis_combinations, context))):
            turns.append(int(draws.choice(rng, self.num_rot_per_combination)))
            # Sorted, as in batchgeneratorsv2: only the number of turns decides about the direction.
            plane = draws.shuffled(rng, self.allowed_axes)[:2]
            planes.append(sorted(axis + 1 for axis in plane))
        return {"num_rot_per_combination": turns, "axis_combinations": planes}

    change = takes(
        num_rot_per_combination=many(integer(-(2**31))),
        axis_combinations=for_each(
            "num_rot_per_combination", distinct(many(integer(1, ParamContext.dims), 2))
        ),
    )(_AxisTransform.rearrange)

    def axis_map(self, params: Params, dims: int) -> AxisMap:
        order = list(range(dims))
        flipped = [False] * dims
        pairs = zip(params["num_rot_per_combination"], params["axis_combinations"], strict=True)
        for turns, (first_axis, second_axis) in pairs:
            # Axis 0 of the params is that of the channels.
            first = first_axis - 1
            second = second_axis - 1
            # A quarter turn reads the second axis from its end and exchanges both, as numpy.rot90
            # does; half a turn reads both from their ends.
            quarter_turns = turns % 4
            if quarter_turns in (1, 2):
                flipped[second] = not flipped[second]
            if quarter_turns in (2, 3):
                flipped[first] = not flipped[first]
            if quarter_turns in (1, 3):
                order[first], order[second] = order[second], order[first]
                flipped[first], flipped[second] = flipped[second], flipped[first]
        return AxisMap(tuple(order), tuple(flipped))


def _check_order(context: ParamContext, value: Any) -> None:
    """Accept 0, for the channels, and then the spatial axes from 1 on in any order."""
    dims = context.dims()
    distinct(many(integer(0, ParamContext.dims), dims + 1))(context, value)
    if value[0] != 0:
        raise InvalidParam(
            ValueError, f"must be 0 and then 1 to {dims} in some order, got {value!r}"
        )


class TransposeAxes(_AxisTransform):
    """The allowed axes in a random order, each order with the same probability.

    Args:
        allowed_axes: spatial axes, which must be equally long in the sample.

    Params: ``{"axis_order": [0, ...]}``: axis a of the result is axis ``axis_order[a]`` of the
    source; axis 0 is that of the channels.

    Raises:
        ValueError: an allowed axis that the sample does not have, or allowed axes of different
            lengths.
    """

    def __init__(self, allowed_axes: Collection[int]) -> None:
        self.allowed_axes = axes("allowed_axes", allowed_axes)

    def draw(self, rng: Generator, shapes: Shapes, context: Context) -> Params:
        space = spatial_shape(shapes)
        allowed = sorted(axes("allowed_axes", self.allowed_axes, len(space)))
        # The result must have the sample's shape: `output_shapes` announces no other one.
        if len({space[axis] for axis in allowed}) > 1:
            raise ValueError(
                "axes of different lengths cannot be exchanged: allowed_axes are"
                f" {self.allowed_axes}, the sample's spatial shape is {space}"
            )
        order = list(range(len(space) + 1))
        # Axis 0 of the arrays is the channel axis, so that spatial axes count from 1.
        for axis, source_axis in zip(allowed, draws.shuffled(rng, allowed), strict=True):
            order[axis + 1] = source_axis + 1
        return {"axis_order": order}

    change = takes(axis_order=_check_order)(_AxisTransform.rearrange)

    def axis_map(self, params: Params, dims: int) -> AxisMap:
        return AxisMap(tuple(axis - 1 for axis in params["axis_order"][1:]), (False,) * dims)


def _rearrange(workspace: Workspace, key: str, axis_map: AxisMap) -> None:
    if axis_map.order != tuple(range(len(axis_map.order))):
        order = [axis + 1 for axis in axis_map.order]
        transposed = workspace.contiguous(key).transpose(0, *order)
        flipped_axes = [axis + 1 for axis, flipped in enumerate(axis_map.flipped) if flipped]
        workspace.put(key, np.flip(transposed, tuple(flipped_axes)).copy(order="C"))
        return
    array = workspace.writable(key)
    # The kernel knows volumes only: a plane is a volume of one slice.
    num_missing = 3 - len(axis_map.order)
    flipped = (False,) * num_missing + axis_map.flipped
    for channel in array:
        shape = (1,) * num_missing + channel.shape
        # Moved as bits: kernels for four widths serve all dtypes.
        bits = channel.reshape(-1).view(UNSIGNED[channel.itemsize])
        flip_in_place(bits, *shape, *flipped)
