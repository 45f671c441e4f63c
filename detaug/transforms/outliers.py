"""Outliers cut off at percentiles."""

from __future__ import annotations

import math

import numpy as np

from detaug.kernels.intensity import clamp, scale_around
from detaug.kernels.statistics import deviations, moments
from detaug.transforms.building import draws
from detaug.transforms.building.base import Context, ImageTransform, Params, RandomScalar, Shapes
from detaug.transforms.building.checks import probability, random_scalar
from detaug.transforms.building.gate import each_channel, flag, many, number, optional, takes
from detaug.transforms.building.per_channel import rescale
from detaug.transforms.building.workspace import Workspace

_LEAST_DEVIATION = (
    1e-8  # batchgeneratorsv2's: a channel that deviates less after the cut is not scaled
)


class CutOffOutliers(ImageTransform):
    """Clamps channels to two of their own percentiles, found exactly and interpolated linearly.

    A channel with a NaN becomes NaN throughout. An infinity is clamped as any other value; the
    standard deviation that is retained is that of the finite values. A percentile between a finite
    value and an infinity is that infinity.

    Args:
        percentile_lower: 0 to 100. percentile_upper: 0 to 100; where a draw is below the lower one,
            it decides.
        p_synchronize_channels: whether all channels get the same percentiles: any number but 0
            means yes, and there is no draw, as in batchgeneratorsv2 0.3.6.
        p_per_channel: the probability of each channel.
        p_retain_std: the probability, for each channel that is clamped, of giving it back its
            standard deviation, around the mean that it has afterwards.

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

    def draw(self, rng: np.random.Generator, shapes: Shapes, context: Context) -> Params:
        applies = [draws.happens(rng, self.p_per_channel) for _ in range(shapes["image"][0])]

        def pair() -> tuple[float, float]:
            lower = draws.scalar(rng, self.percentile_lower, context)
            return lower, draws.scalar(rng, self.percentile_upper, context)

        shared = pair() if self.p_synchronize_channels else None
        percentiles = [(shared or pair()) if apply else None for apply in applies]
        retain = [
            each is not None and draws.happens(rng, self.p_retain_std) for each in percentiles
        ]
        return {"percentiles": percentiles, "retain_std": retain}

    @takes(
        percentiles=each_channel(optional(many(number(0, 100), 2))), retain_std=each_channel(flag)
    )
    def change(self, workspace: Workspace, params: Params) -> None:
        cuts = {
            c: (*percentiles, retain)
            for c, (percentiles, retain) in enumerate(
                zip(params["percentiles"], params["retain_std"], strict=True)
            )
            if percentiles is not None and tuple(percentiles) != (0.0, 100.0)
        }
        for c, source, destination in workspace.chosen_channels(cuts, np.ravel):
            cut_off(source, destination, *cuts[c])

    kernels = (moments, clamp, deviations, scale_around)


def percentiles_of(values: np.ndarray, wanted: tuple[float, ...]) -> list[float]:
    """Percentiles of a flat float32 array, interpolated linearly between the two nearest ranks in
    float64; NaN if there is one among the values.
    """
    if np.isnan(values).any():
        return [math.nan] * len(wanted)
    values = values + np.float32(0)  # one kind of zero
    result = []
    for percentile in wanted:
        position = percentile / 100.0 * (values.size - 1)
        rank = math.floor(position)
        ordered = np.partition(values, rank)
        low = float(ordered[rank])
        high = float(ordered[rank + 1 :].min(initial=np.inf if rank + 1 < values.size else low))
        result.append(_between(low, high, position - rank))
    return result


def _between(low: float, high: float, fraction: float) -> float:
    """Return the number a fraction of the way from low to high; either may be infinite."""
    if low == high or fraction == 0.0 or (math.isinf(low) and math.isfinite(high)):
        return low
    if math.isinf(low) and math.isinf(high):
        return low if fraction < 0.5 else high
    return low + (high - low) * fraction


def cut_off(
    source: np.ndarray, destination: np.ndarray, lower: float, upper: float, retain: bool
) -> None:
    """Clamp one channel to its percentiles; flat arrays, which may be one."""
    deviation = _deviation_of_finite(source) if retain else 0.0
    low, high = percentiles_of(source, (lower, upper))
    if math.isnan(low):
        destination.fill(np.nan)
        return
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
