"""Intensities mapped by a random curve that never falls."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from detaug.kernels.intensity import map_piecewise
from detaug.kernels.statistics import least_and_largest
from detaug.transforms.building import draws
from detaug.transforms.building.base import Context, Params, Shapes
from detaug.transforms.building.checks import integer_range
from detaug.transforms.building.gate import channels_with, many, number, takes
from detaug.transforms.building.per_channel import ChannelTransform, by_channel, flat_planes
from detaug.transforms.building.workspace import Workspace


class HistogramShift(ChannelTransform):
    """Intensities mapped piecewise linearly between control points; least and largest value stay.

    Control points are evenly spaced from the least to the largest value. Inner ones are moved one
    after another: each uniformly between the one before it (already moved) and the one after it, so
    that the curve never falls. Formula and default are those of MONAI's ``RandHistogramShift``.

    Args:
        num_control_points: at least 3: one number, or a range (low, high), both included. The fewer
            there are, the stronger is the change.
        synchronize_channels: one curve for all channels, from the image's least value to its
            largest, as in MONAI; else each channel has its own, over its own values.
        p_per_channel: the probability of each channel.

    NaN stays NaN and is ignored in the range. With an infinity, the channels that are changed
    become NaN. An image (or channel) of a single value is unchanged.

    Params: ``{"apply_to_channel": [channels], "control_points": [[0, ..., 1] for each of them]}``:
    the points after the move, as fractions of the range.

    Raises:
        ValueError: fewer than 3 control points; from `apply`, params that are no such points.
    """

    def __init__(
        self,
        num_control_points: int | tuple[int, int] = 10,
        synchronize_channels: bool = True,
        p_per_channel: float = 1.0,
    ) -> None:
        super().__init__(p_per_channel, synchronize_channels)
        self.num_control_points = integer_range("num_control_points", num_control_points, minimum=3)

    def draw(self, rng: np.random.Generator, shapes: Shapes, context: Context) -> Params:
        def draw_curve(_: int | None) -> list[float]:
            return self._draw_curve(rng)

        return self.draw_channels(rng, shapes, "control_points", draw_curve)

    def _draw_curve(self, rng: np.random.Generator) -> list[float]:
        low, high = self.num_control_points
        count = draws.integer_between(rng, low, high)
        points = [index / (count - 1) for index in range(count)]
        for index in range(1, count - 1):
            points[index] = draws.uniform(rng, points[index - 1], points[index + 1])
        return points

    @takes(**channels_with(control_points=many(number(0, 1), least=3)))
    def change(self, workspace: Workspace, params: Params) -> None:
        curves = dict(by_channel(params, "control_points"))
        if not curves:
            return
        image = workspace.image()
        measured = range(len(image)) if self.synchronize_channels else curves
        limits = {c: least_and_largest(flat_planes(image[c])) for c in measured}
        if self.synchronize_channels:
            low = min(channel_low for channel_low, _ in limits.values())
            high = max(channel_high for _, channel_high in limits.values())
            limits = dict.fromkeys(curves, (low, high))
        ranges = {}
        for channel, (low, high) in limits.items():
            if high > low:
                ranges[channel] = (low, high - low)
        for channel, before, after in workspace.chosen_channels(ranges, np.ravel):
            low, extent = ranges[channel]
            if math.isfinite(extent):
                map_piecewise(before, after, *_pieces(curves[channel], low, extent))
            else:
                after.fill(np.nan)

    kernels = (least_and_largest, map_piecewise)


def _pieces(points: Sequence[float], low: float, extent: float) -> tuple[Any, ...]:
    """Return the arguments of `map_piecewise` after its arrays.

    Args:
        points: the moved control points, as fractions of the range.
        low: the range's least value.
        extent: the range's length.
    """
    count = len(points) - 1
    knots = low + extent * (np.arange(count) / count)
    values = low + extent * np.array(points[:-1], np.float64)
    slopes = np.array([(after - before) * count for before, after in pairwise(points)], np.float64)
    rounded = knots.astype(np.float32)
    # What a knot loses when it is rounded, its value makes up for.
    values += (rounded.astype(np.float64) - knots) * slopes
    return np.float32(low), np.float32(min(count / extent, 3e38)), rounded, values, slopes
