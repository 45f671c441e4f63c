"""Outliers cut off at percentiles."""

from __future__ import annotations

import math

import numpy as np
from numpy.random import Generator

from detaug.kernels.intensity import clamp, scale_around
from detaug.kernels.statistics import deviations, moments
from detaug.transforms.building import draws
from detaug.transforms.building.base import Context, ImageTransform, Params, RandomScalar, Shapes
from detaug.transforms.building.checks import probability, random_scalar
from detaug.transforms.building.gate import each_channel, flag, many, number, optional, takes
from detaug.transforms.building.per_channel import rescale
from detaug.transforms.building.workspace import Workspace

#: A channel that deviates less after the cut is not scaled; batchgeneratorsv2's.
_LEAST_DEVIATION = 1e-8


class CutOffOutliers(ImageTransform):
    """Channels clamped to two of their own percentiles, which are exact and interpolated linearly.

    A channel with a NaN becomes NaN throughout. An infinity is clamped as any other value; the
    standard deviation that is retained is that of the finite values. A percentile between a finite
    value and an infinity is that infinity.

    Args:
        percentile_lower: 0 to 100.
        percentile_upper: 0 to 100; if a draw of it is below the lower one, it decides.
        p_synchronize_channels: all channels get the same percentiles. Any number but 0 is true, and
            nothing is drawn, as in batchgeneratorsv2 0.3.6.
        p_per_channel: the probability of each channel.
        p_retain_std: the probability, for each channel that is clamped, that its standard deviation
            is restored, around the mean that it has afterwards.

    Params: ``{"percentiles": [(lower, upper) or None for each channel], "retain_std": [bools]}``.
    """

    def __init__(
        self,
        percentile_lower: RandomScalar = 0.2,
        percentile_upper: RandomScalar = 99.8,
        p_synchronize_channels: bool = False,
        p_per_channel: float = 1.0,
        p_retain_std: float = 1.0,
    ) -> None:
        self.percentile_lower = random_scalar(
            "percentile_lower", percentile_lower, minimum=0, maximum=100
        )
        self.percentile_upper = random_scalar(
            "percentile_upper", percentile_upper, minimum=0, maximum=100
        )
        self.p_synchronize_channels = p_synchronize_channels
        self.p_per_channel = probability("p_per_channel", p_per_channel)
        self.p_retain_std = probability("p_retain_std", p_retain_std)

    def draw(self, rng: Generator, shapes: Shapes, context: Context) -> Params:
        applies = draws.flags(rng, self.p_per_channel, shapes["image"][0])
        shared = None
        if self.p_synchronize_channels:
            # Drawn also if no channel is clamped.
            shared = self._draw_percentiles(rng, context)
        percentiles: list[tuple[float, float] | None] = []
        for is_applied in applies:
            if not is_applied:
                percentiles.append(None)
            elif shared is not None:
                percentiles.append(shared)
            else:
                percentiles.append(self._draw_percentiles(rng, context))
        retain = [is_applied and draws.happens(rng, self.p_retain_std) for is_applied in applies]
        return {"percentiles": percentiles, "retain_std": retain}

    def _draw_percentiles(self, rng: Generator, context: Context) -> tuple[float, float]:
        lower = draws.scalar(rng, self.percentile_lower, context)
        upper = draws.scalar(rng, self.percentile_upper, context)
        return lower, upper

    @takes(
        percentiles=each_channel(optional(many(number(0, 100), 2))), retain_std=each_channel(flag)
    )
    def change(self, workspace: Workspace, params: Params) -> None:
        cuts = {}
        drawn = zip(params["percentiles"], params["retain_std"], strict=True)
        for channel, (percentiles, retain) in enumerate(drawn):
            # Percentiles 0 and 100 cut nothing off.
            if percentiles is None or tuple(percentiles) == (0.0, 100.0):
                continue
            lower, upper = percentiles
            cuts[channel] = (lower, upper, retain)
        for cut, source, destination in workspace.chosen_channels(cuts, np.ravel):
            cut_off(source, destination, *cut)

    kernels = (moments, clamp, deviations, scale_around)


def percentiles_of(values: np.ndarray, wanted: tuple[float, ...]) -> list[float]:
    """Return percentiles of float32 values, interpolated in float64 between the two nearest ranks.

    Args:
        values: flat; with a NaN among them, all percentiles are NaN.
        wanted: from 0 to 100.
    """
    if np.isnan(values).any():
        return [math.nan] * len(wanted)
    # Adding 0 leaves one kind of zero.
    values = values + np.float32(0)
    result = []
    for percentile in wanted:
        position = percentile / 100.0 * (values.size - 1)
        rank = math.floor(position)
        # The values at and above a rank are the same however NumPy's version of partition works.
        ordered = np.partition(values, rank)
        low = float(ordered[rank])
        high = low
        if rank + 1 < values.size:
            high = float(ordered[rank + 1 :].min())
        result.append(_between(low, high, position - rank))
    return result


def _between(low: float, high: float, fraction: float) -> float:
    """Return the number at a fraction of the way from low to high; either may be infinite."""
    if low == high or fraction == 0.0 or (math.isinf(low) and math.isfinite(high)):
        return low
    if math.isinf(low) and math.isinf(high):
        return low if fraction < 0.5 else high
    return low + (high - low) * fraction


def cut_off(
    source: np.ndarray, destination: np.ndarray, lower: float, upper: float, retain: bool
) -> None:
    """Clamp one channel to its percentiles.

    Args:
        source: float32, flat.
        destination: float32, flat; it may be the source.
        lower: a percentile, 0 to 100.
        upper: a percentile, 0 to 100.
        retain: restore the standard deviation of the finite values.
    """
    deviation = 0.0
    if retain:
        # Measured first: the destination may be the source.
        deviation = _deviation_of_finite(source)
    low, high = percentiles_of(source, (lower, upper))
    if math.isnan(low):
        destination.fill(np.nan)
        return
    # Written only after the percentiles are known: both arrays may be one.
    destination[...] = source
    clamp(destination, np.float32(low), np.float32(high))
    if not retain:
        return
    mean, clamped_deviation = deviations(destination[None], float(np.float32(low)))
    # Where an infinity is left, there is no standard deviation to change.
    if math.isfinite(clamped_deviation) and clamped_deviation > _LEAST_DEVIATION:
        rescale(destination, mean, deviation / clamped_deviation, mean)


def _deviation_of_finite(values: np.ndarray) -> float:
    """Return the standard deviation of the values that are finite; 0 if none is."""
    deviation = float(moments(values)[3])
    if math.isfinite(deviation):
        return deviation
    finite = values[np.isfinite(values)]
    if finite.size == 0:
        return 0.0
    return float(moments(finite)[3])
