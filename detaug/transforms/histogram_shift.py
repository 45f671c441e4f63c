"""Intensities mapped by a random rising curve."""

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
    """Maps intensities by straight pieces between control points; least and largest value stay.

    Control points are evenly spaced from the least to the largest value. Inner ones are moved one
    after another, each evenly between the one before it (moved already) and the one after it, so
    that the curve never falls. Formula and default are those of MONAI's ``RandHistogramShift``.

    Args:
        num_control_points: how many, at least 3: one number, or a range (low, high), both included.
            The fewer, the stronger the change.
        synchronize_channels: one curve for all channels, from the image's least value to its
            largest, as in MONAI; else each channel its own, over its own values.
        p_per_channel: the probability of each channel.

    NaN stays NaN, and does not count as least or largest; with an infinity, the channels that are
    changed become NaN. An image (or channel) of a single value is unchanged. Params:
    ``{"apply_to_channel": [channels], "control_points": [[0, ..., 1] for each of them]}``: where
    the points go, in parts of the range.

    Raises:
        ValueError: fewer than 3 control points; from `apply`, points that are not.
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
        return self.draw_channels(rng, shapes, "control_points", lambda _: self._curve(rng))

    def _curve(self, rng: np.random.Generator) -> list[float]:
        count = draws.integer_between(rng, *self.num_control_points)
        points = [n / (count - 1) for n in range(count)]
        for n in range(1, count - 1):
            points[n] = draws.uniform(rng, points[n - 1], points[n + 1])
        return points

    @takes(**channels_with(control_points=many(number(0, 1), least=3)))
    def change(self, workspace: Workspace, params: Params) -> None:
        curves = dict(by_channel(params, "control_points"))
        if not curves:
            return
        image = workspace.image()
        seen = range(len(image)) if self.synchronize_channels else curves
        limits = {c: least_and_largest(flat_planes(image[c])) for c in seen}
        if self.synchronize_channels:
            shared = (
                min(low for low, _ in limits.values()),
                max(high for _, high in limits.values()),
            )
            limits = dict.fromkeys(curves, shared)
        maps = {c: (low, high - low) for c, (low, high) in limits.items() if high > low}
        for c, before, after in workspace.chosen_channels(maps, np.ravel):
            if math.isfinite(maps[c][1]):
                map_piecewise(before, after, *_pieces(curves[c], *maps[c]))
            else:
                after.fill(np.nan)

    kernels = (least_and_largest, map_piecewise)


def _pieces(points: Sequence[float], low: float, extent: float) -> tuple[Any, ...]:
    """What `map_piecewise` takes after its arrays."""
    count = len(points) - 1
    knots = low + extent * (np.arange(count) / count)
    values = low + extent * np.array(points[:-1], np.float64)
    slopes = np.array([(after - before) * count for before, after in pairwise(points)], np.float64)
    rounded = knots.astype(np.float32)
    values += (rounded.astype(np.float64) - knots) * slopes
    return np.float32(low), np.float32(min(count / extent, 3e38)), rounded, values, slopes
