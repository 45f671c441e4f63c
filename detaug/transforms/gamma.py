"""Gamma correction."""

from __future__ import annotations

import math

import numpy as np
from numpy.random import Generator

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

#: The least divisor in place of a range or a standard deviation; batchgeneratorsv2's.
_LEAST_RANGE = 1e-7


class Gamma(ChannelTransform):
    """``((x - min) / (max - min)) ^ gamma · (max - min) + min`` for channels.

    A channel with a NaN or an infinity becomes NaN throughout. A constant channel stays as it is.

    Args:
        gamma: the exponent, above 0 and at most 64; beyond, a ValueError.
        p_invert_image: the probability, for each channel that is changed, that the curve is applied
            to its negative.
        synchronize_channels: one gamma for all channels; else one for each.
        p_per_channel: the probability of each channel.
        p_retain_stats: the probability, for each channel that is changed, that its mean and
            standard deviation are restored.

    Params: ``{"apply_to_channel": [channels], "retain_stats": [bools], "invert_image": [bools],
    "gamma": [numbers]}``, each with one element per channel that is changed; without such a
    channel, the last three are None.
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

    def draw(self, rng: Generator, shapes: Shapes, context: Context) -> Params:
        channels = draws.channels_drawn(rng, range(shapes["image"][0]), self.p_per_channel)
        params: Params = {
            "apply_to_channel": channels,
            "retain_stats": None,
            "invert_image": None,
            "gamma": None,
        }
        if not channels:
            return params

        def draw_gamma(channel: int | None) -> float:
            return draws.scalar(rng, self.gamma, {**context, "channel": channel})

        # The order of these draws must stay: a seed's params depend on it.
        params["retain_stats"] = draws.flags(rng, self.p_retain_stats, len(channels))
        params["invert_image"] = draws.flags(rng, self.p_invert_image, len(channels))
        params["gamma"] = self.for_channels(channels, draw_gamma)
        return params

    @takes(
        apply_to_channel=CHANNELS,
        retain_stats=none_without_channels(for_each("apply_to_channel", flag)),
        invert_image=none_without_channels(for_each("apply_to_channel", flag)),
        gamma=none_without_channels(for_each("apply_to_channel", EXPONENT)),
    )
    def change(self, workspace: Workspace, params: Params) -> None:
        curves = {}
        for channel, *curve in by_channel(params, "gamma", "invert_image", "retain_stats"):
            gamma, _, _ = curve
            if gamma != 1:
                curves[channel] = curve
        for curve, source, destination in workspace.chosen_channels(curves, np.ravel):
            bend(source, destination, *curve)

    kernels = (moments, gamma_curve, scale_around)


def bend(
    source: np.ndarray, destination: np.ndarray, gamma: float, invert: bool, retain: bool
) -> None:
    """Apply gamma correction to one channel.

    Args:
        source: float32, flat.
        destination: float32, flat; it may be the source.
        gamma: the exponent.
        invert: apply the curve to the channel's negative.
        retain: restore the channel's mean and standard deviation.
    """
    low, high, mean, deviation = moments(source)
    with np.errstate(over="ignore"):
        span = float(np.float32(high - low))
    if not math.isfinite(mean) or not math.isfinite(span):
        destination.fill(np.nan)
        return
    # The negative's minimum is the negated maximum, so both cases are one curve from an origin that
    # is either end of the range, up or down.
    if invert:
        origin = high
        direction = -1.0
    else:
        origin = low
        direction = 1.0
    extent = direction * max(span, _LEAST_RANGE)
    # Rounded here, so that the table and the polynomial are made for the same exponent.
    exponent = np.float32(gamma)
    # The power of the mean is near the mean of the powers: sums around it lose few bits.
    share_of_mean = (mean - origin) / extent
    pivot = 0.0
    if share_of_mean > 0:
        pivot = exponential(gamma * natural_log(share_of_mean))
    curve_mean, curve_deviation = gamma_curve(
        source,
        destination,
        np.float32(origin),
        np.float32(extent),
        exponent,
        *power_parts(float(exponent)),
        np.float32(pivot),
    )
    if not retain:
        scale = np.float32(direction * span)
        scale_around(destination, destination, np.float32(0), scale, np.float32(origin))
        return
    # One linear map restores the old mean and the old standard deviation.
    factor = direction * span * deviation / max(curve_deviation * span, _LEAST_RANGE)
    rescale(destination, curve_mean, factor, mean)
