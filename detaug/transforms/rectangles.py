"""Rectangles that are overwritten with one value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.random import Generator

from detaug.transforms.building import draws, gate
from detaug.transforms.building.base import Context, ImageTransform, Params, Shapes
from detaug.transforms.building.checks import integer_range, probability, random_scalar
from detaug.transforms.building.draws import asks_for
from detaug.transforms.building.gate import InvalidParam, ParamContext, each_channel, many, takes
from detaug.transforms.building.workspace import Workspace

Corners = tuple[list[int], list[int]]

#: The lower and the upper corner; an index may be negative, and stands for 0 then.
CORNERS = many(gate.each_axis(gate.integer(-(2**31))), 2)


def _check_values(context: ParamContext, value: Any) -> None:
    """Accept one value for each rectangle of each channel."""
    check = gate.number()
    if callable(context.transform.rectangle_value):
        check = gate.KEY
    gate.for_each("rectangles", many(check))(context, value)
    pairs = zip(context.params["rectangles"], value, strict=True)
    for channel, (rectangles, values) in enumerate(pairs):
        if len(rectangles) != len(values):
            raise InvalidParam(
                ValueError,
                f"must have {len(rectangles)} for channel {channel}, as many as rectangles, got "
                f"{len(values)}",
            )


class BlankRectangle(ImageTransform):
    """Random rectangles (boxes in 3-D) within the image, each overwritten with one value.

    Args:
        rectangle_size: voxels: one number for all axes, one for each axis, or (low, high) for each
            axis, from which sizes are drawn, high excluded unless it equals low.
        rectangle_value: a number, a range (low, high) to draw from uniformly, or a callable. The
            callable gets the rectangle's voxels as they are at that moment (a NumPy array, a copy
            of its own), and a Generator if it has an argument called ``rng``.
        num_rectangles: the number in each channel, or a range (low, high), high excluded unless it
            equals low.
        force_square: draw one size, from the first axis's range, for all axes.
        p_per_channel: the probability of each channel.

    Params: ``{"apply_channel": [bools], "rectangles": [[(lower, upper), ...] per channel],
    "values": [[...] per channel]}``; corners are lists of voxel indices, the upper ones excluded.
    With a callable, values are 64-bit keys of Generators.

    Raises:
        ValueError: from `sample`, a rectangle that does not fit into the image, or sizes for
            another number of axes.
    """

    def __init__(
        self,
        rectangle_size: int | Sequence[int] | Sequence[Sequence[int]],
        rectangle_value: float | tuple[float, float] | Callable[..., float],
        num_rectangles: int | tuple[int, int],
        force_square: bool = False,
        p_per_channel: float = 1.0,
    ) -> None:
        self.rectangle_size = _checked_sizes(rectangle_size)
        self.rectangle_value = random_scalar("rectangle_value", rectangle_value)
        self.num_rectangles = integer_range("num_rectangles", num_rectangles, minimum=0)
        self.force_square = force_square
        self.p_per_channel = probability("p_per_channel", p_per_channel)

    def draw(self, rng: Generator, shapes: Shapes, context: Context) -> Params:
        count, *space = shapes["image"]
        # Numbers are drawn for all channels first: a seed's params depend on this order.
        applies = draws.flags(rng, self.p_per_channel, count)
        numbers = [draws.integer_below(rng, *self.num_rectangles) for _ in range(count)]
        rectangles: list[list[Corners]] = []
        values: list[list[float]] = []
        for is_applied, number in zip(applies, numbers, strict=True):
            rectangles.append([])
            values.append([])
            if not is_applied:
                continue
            for _ in range(number):
                rectangles[-1].append(self._draw_rectangle(rng, space))
                values[-1].append(self._draw_value(rng))
        return {"apply_channel": applies, "rectangles": rectangles, "values": values}

    def _draw_value(self, rng: Generator) -> float:
        """Draw a rectangle's value, or the key of the Generator that a callable gets."""
        if callable(self.rectangle_value):
            return draws.key(rng)
        return draws.scalar(rng, self.rectangle_value, {})

    def _draw_rectangle(self, rng: Generator, space: list[int]) -> Corners:
        ranges = self.rectangle_size
        if not isinstance(ranges, list):
            ranges = [ranges] * len(space)
        if len(ranges) != len(space):
            raise ValueError(
                f"rectangle_size is for {len(ranges)} axes, but the image has {len(space)}"
            )
        # A square has one size: it is drawn from the first axis' range.
        if self.force_square:
            size = [draws.integer_below(rng, *ranges[0])] * len(space)
        else:
            size = [draws.integer_below(rng, low, high) for low, high in ranges]
        # An error, not a smaller rectangle: the user asked for this size.
        if any(extent > length for extent, length in zip(size, space, strict=True)):
            raise ValueError(f"a rectangle of {size} voxels does not fit into an image of {space}")
        return placed(rng, size, space)

    @takes(
        apply_channel=each_channel(gate.flag),
        rectangles=each_channel(many(CORNERS)),
        values=_check_values,
    )
    def change(self, workspace: Workspace, params: Params) -> None:
        # The image is not copied if there is nothing to overwrite.
        if not any(params["rectangles"]):
            return
        image = workspace.writable("image")
        drawn = zip(image, params["rectangles"], params["values"], strict=True)
        for channel, rectangles, values in drawn:
            for corners, value in zip(rectangles, values, strict=True):
                region = channel[within(corners)]
                if callable(self.rectangle_value):
                    # In order: rectangles may overlap, and a callable sees those written before.
                    region[...] = self._call_for_value(region, value)
                else:
                    region[...] = value

    def _call_for_value(self, region: np.ndarray, key: int) -> float:
        """Return the value that the user's callable gives for a region."""
        function: Any = self.rectangle_value
        # Called with a copy, so that it cannot write to the image.
        if asks_for(function, "rng"):
            return float(function(region.copy(), rng=draws.generator_of(key)))
        return float(function(region.copy()))


def placed(rng: Generator, size: Sequence[int], space: Sequence[int]) -> Corners:
    """Draw a rectangle's lower and upper corner, anywhere within a space that it fits into.

    Args:
        rng: the Generator to draw from.
        size: of the rectangle in voxels, one number for each axis.
        space: of the image, likewise.
    """
    lower = []
    upper = []
    for extent, length in zip(size, space, strict=True):
        start = draws.integer(rng, length - extent + 1)
        lower.append(start)
        upper.append(start + extent)
    return lower, upper


def within(corners: Corners) -> tuple[slice, ...]:
    """Return a rectangle's voxels as an index of a channel."""
    # A negative corner would count from the axis' end.
    return tuple(slice(max(low, 0), max(high, 0)) for low, high in zip(*corners, strict=True))


def _checked_sizes(wanted: Any) -> tuple[int, int] | list[tuple[int, int]]:
    """Return one range (low, high), or a list of one for each axis, checked."""
    if isinstance(wanted, (tuple, list)):
        return [integer_range("rectangle_size", size, minimum=1) for size in wanted]
    return integer_range("rectangle_size", wanted, minimum=1)
