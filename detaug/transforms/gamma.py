"""Gamma correction."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from detaug.kernels.gamma import gamma_curve, power_parts
from detaug.kernels.intensity import scale_around
from detaug.kernels.scalars import exponential, natural_log
from detaug.kernels.statistics import moments
from detaug.transforms.building import draws
from detaug.transforms.building.base import Context, Params, RandomScalar, Shapes
from detaug.transforms.building.checks import probability, random_scalar
from detaug.transforms.building.gate import (
    CHANNELS,
    EXPONENT,
    LARGEST_EXPONENT,
    flag,
    for_each,
    none_without_channels,
    takes,
)
from detaug.transforms.building.per_channel import ChannelTransform, by_channel, rescale
from detaug.transforms.building.workspace import Workspace

_LEAST_RANGE = (
    1e-7  # batchgeneratorsv2's: what ranges and deviations are divided by is at least this
)


class Gamma(ChannelTransform):
    """``((x - min) / (max - min)) ^ gamma · (max - min) + min`` for channels.

    A channel with a NaN or an infinity becomes NaN throughout. A constant channel stays as it is.

    Args:
        gamma: the exponent, above 0 and at most 64; beyond, a ValueError.
        p_invert_image: the probability, for each channel that is changed, that the curve is applied
            to its negative.
        synchronize_channels: one gamma for all channels; else one for each.
        p_per_channel: the probability of each channel.
        p_retain_stats: the probability, for each channel that is changed, of giving it back its
            mean and standard deviation.

    Params: ``{"apply_to_channel": [channels], "retain_stats": [bools], "invert_image": [bools],
    "gamma": [numbers]}``,
    each one per channel that is changed; None but for the first where there is none.
    """

    def __init__(
        self,
        gamma: RandomScalar,
        p_invert_image: float,
        synchronize_channels: bool,
        p_per_channel: float,
        p_retain_stats: float,
    ) -> None:
        super().__init__(p_per_channel, synchronize_channels)
        self.gamma = random_scalar("gamma", gamma, above=0, maximum=LARGEST_EXPONENT)
        self.p_invert_image = probability("p_invert_image", p_invert_image)
        self.p_retain_stats = probability("p_retain_stats", p_retain_stats)

    def draw(self, rng: np.random.Generator, shapes: Shapes, context: Context) -> Params:
        channels = draws.channels_drawn(rng, range(shapes["image"][0]), self.p_per_channel)
        if not channels:
            return {
                "apply_to_channel": channels,
                "retain_stats": None,
                "invert_image": None,
                "gamma": None,
            }
        retain = [draws.happens(rng, self.p_retain_stats) for _ in channels]
        invert = [draws.happens(rng, self.p_invert_image) for _ in channels]
        gammas = self.for_channels(
            channels, lambda c: draws.scalar(rng, self.gamma, {**context, "channel": c})
        )
        return {
            "apply_to_channel": channels,
            "retain_stats": retain,
            "invert_image": invert,
            "gamma": gammas,
        }

    @takes(
        apply_to_channel=CHANNELS,
        retain_stats=none_without_channels(for_each("apply_to_channel", flag)),
        invert_image=none_without_channels(for_each("apply_to_channel", flag)),
        gamma=none_without_channels(for_each("apply_to_channel", EXPONENT)),
    )
    def change(self, workspace: Workspace, params: Params) -> None:
        drawn = by_channel(params, "gamma", "invert_image", "retain_stats")
        curves = {c: (gamma, invert, retain) for c, gamma, invert, retain in drawn if gamma != 1}
        for c, source, destination in workspace.chosen_channels(curves, np.ravel):
            bend(source, destination, *curves[c])

    kernels = (moments, gamma_curve, scale_around)


def bend(
    source: np.ndarray, destination: np.ndarray, gamma: float, invert: bool, retain: bool
) -> None:
    """One channel's gamma correction; flat arrays, which may be one."""
    low, high, mean, deviation = moments(source)
    with np.errstate(over="ignore"):
        span = float(np.float32(high - low))
    if not math.isfinite(mean) or not math.isfinite(span):
        destination.fill(np.nan)
        return
    # the negative's minimum is the negated maximum: both cases are one curve from the origin, up or
    # down
    origin, direction = (high, -1.0) if invert else (low, 1.0)
    curve: tuple[Any, ...] = tuple(
        np.float32(number) for number in (origin, direction * max(span, _LEAST_RANGE), gamma)
    )
    curve += power_parts(float(curve[2]))
    share_of_mean = (mean - origin) / (direction * max(span, _LEAST_RANGE))
    pivot = exponential(gamma * natural_log(share_of_mean)) if share_of_mean > 0 else 0.0
    curve_mean, curve_deviation = gamma_curve(source, destination, *curve, np.float32(pivot))
    if not retain:
        scale_around(
            destination,
            destination,
            np.float32(0),
            np.float32(direction * span),
            np.float32(origin),
        )
        return
    factor = direction * span * deviation / max(curve_deviation * span, _LEAST_RANGE)
    rescale(destination, curve_mean, factor, mean)
