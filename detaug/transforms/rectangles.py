"""Rectangles that are overwritten with one value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import add, gt
from typing import Any

import numpy as np

from detaug.transforms.building import draws, gate
from detaug.transforms.building.base import Context, ImageTransform, Params, Shapes
from detaug.transforms.building.checks import integer_range, probability, random_scalar
from detaug.transforms.building.draws import asks_for
from detaug.transforms.building.gate import InvalidParam, ParamContext, each_channel, many, takes
from detaug.transforms.building.workspace import Workspace

Corners = tuple[list[int], list[int]]

CORNERS = many(gate.each_axis(gate.integer(-(2**31))), 2)


def _check_values(given: ParamContext, value: Any) -> None:
    """As many for each channel as it has rectangles."""
    rectangles, asked = given.params["rectangles"], callable(given.transform.rectangle_value)
    gate.for_each("rectangles", many(gate.KEY if asked else gate.number()))(given, value)
    for c, (own, values) in enumerate(zip(rectangles, value, strict=True)):
        if len(own) != len(values):
            raise InvalidParam(
                ValueError,
                f"must have {len(own)} for channel {c}, as many as rectangles, got {len(values)}",
            )


class BlankRectangle(ImageTransform):
    """Overwrites random rectangles (boxes in 3-D), each inside the image, with one value each.

    Args:
        rectangle_size: voxels: one number for all axes, one for each axis, or (low, high) for each
            axis, from which sizes are drawn, high excluded unless it equals low.
        rectangle_value: a number, a range (low, high) to draw from evenly, or a callable. The
            callable is given the rectangle's voxels as they are at that moment (a NumPy array, the
            caller's own copy), and a Generator if it has an argument called ``rng``.
        num_rectangles: how many in each channel, or a range (low, high), high excluded unless it
            equals low.
        force_square: draw one size, from the first axis's range, for all axes.
        p_per_channel: the probability of each channel.

    Params: ``{"apply_channel": [bools], "rectangles": [[(lower, upper), ...] per channel],
    "values": [[...] per
    channel]}``; corners are lists of voxel indices, the upper ones excluded. With a callable,
    values are 64-bit keys of Generators.

    Raises:
        ValueError: from `sample`, if a rectangle does not fit into the image, or there are sizes
            for another number of axes.
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

    def draw(self, rng: np.random.Generator, shapes: Shapes, context: Context) -> Params:
        count, *space = shapes["image"]
        applies = [draws.happens(rng, self.p_per_channel) for _ in range(count)]
        numbers = [draws.integer_below(rng, *self.num_rectangles) for _ in range(count)]
        rectangles: list[list[Corners]] = [[] for _ in range(count)]
        values: list[list[float]] = [[] for _ in range(count)]
        asked = callable(self.rectangle_value)
        for c in range(count):
            for _ in range(numbers[c] if applies[c] else 0):
                rectangles[c].append(self._rectangle(rng, space))
                values[c].append(
                    draws.key(rng) if asked else draws.scalar(rng, self.rectangle_value, {})
                )
        return {"apply_channel": applies, "rectangles": rectangles, "values": values}

    def _rectangle(self, rng: np.random.Generator, space: list[int]) -> Corners:
        ranges = (
            self.rectangle_size
            if isinstance(self.rectangle_size, list)
            else [self.rectangle_size] * len(space)
        )
        if len(ranges) != len(space):
            raise ValueError(
                f"rectangle_size is for {len(ranges)} axes, but the image has {len(space)}"
            )
        size = [
            draws.integer_below(rng, *each)
            for each in (ranges[:1] if self.force_square else ranges)
        ]
        size = size * len(space) if self.force_square else size
        if any(map(gt, size, space)):
            raise ValueError(f"a rectangle of {size} voxels does not fit into an image of {space}")
        return placed(rng, size, space)

    @takes(
        apply_channel=each_channel(gate.flag),
        rectangles=each_channel(many(CORNERS)),
        values=_check_values,
    )
    def change(self, workspace: Workspace, params: Params) -> None:
        if not any(map(len, params["rectangles"])):
            return
        image = workspace.writable("image")
        for channel, rectangles, values in zip(
            image, params["rectangles"], params["values"], strict=True
        ):
            for corners, value in zip(rectangles, values, strict=True):
                region = channel[within(corners)]
                region[...] = (
                    self._asked(region, value) if callable(self.rectangle_value) else value
                )

    def _asked(self, region: np.ndarray, key: int) -> float:
        function: Any = self.rectangle_value
        drawing = {"rng": draws.generator_of(key)} if asks_for(function, "rng") else {}
        return float(function(region.copy(), **drawing))


def placed(rng: np.random.Generator, size: Sequence[int], space: Sequence[int]) -> Corners:
    """Lower and upper corner of a rectangle, anywhere within a space that it fits into."""
    lower = [draws.integer(rng, length - n + 1) for n, length in zip(size, space, strict=True)]
    return lower, list(map(add, lower, size))


def within(corners: Corners) -> tuple[slice, ...]:
    """A rectangle's voxels, as an index of a channel."""
    return tuple(slice(max(low, 0), max(high, 0)) for low, high in zip(*corners, strict=True))


def _checked_sizes(wanted: Any) -> tuple[int, int] | list[tuple[int, int]]:
    """One (low, high), or a list of one for each axis."""
    if isinstance(wanted, (tuple, list)):
        return [integer_range("rectangle_size", each, minimum=1) for each in wanted]
    return integer_range("rectangle_size", wanted, minimum=1)
