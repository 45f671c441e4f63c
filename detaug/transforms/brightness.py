"""Brightness: intensities times a number, or plus a number."""

from __future__ import annotations

import numpy as np
from numpy.random import Generator

from detaug.transforms.building import draws
from detaug.transforms.building.base import Context, ImageTransform, Params, RandomScalar, Shapes
from detaug.transforms.building.checks import finite, probability, random_scalar
from detaug.transforms.building.gate import (
    CHANNELS,
    channels_with,
    each_channel,
    none_without_channels,
    number,
    takes,
)
from detaug.transforms.building.per_channel import ChannelTransform, by_channel
from detaug.transforms.building.workspace import Workspace


class MultiplicativeBrightness(ChannelTransform):
    """Channels times a random number; NaN and infinity stay as they are.

    Args:
        multiplier_range: the multiplier.
        synchronize_channels: one multiplier for all channels; else one for each.
        p_per_channel: the probability of each channel.

    Params: ``{"apply_to_channel": [channels], "multipliers": [one per channel]}``.
    """

    def __init__(
        self, multiplier_range: RandomScalar, synchronize_channels: bool, p_per_channel: float = 1.0
    ) -> None:
        super().__init__(p_per_channel, synchronize_channels)
        self.multiplier_range = random_scalar("multiplier_range", multiplier_range)

    def draw(self, rng: Generator, shapes: Shapes, context: Context) -> Params:
        return self.draw_scalars(rng, shapes, context, "multipliers", self.multiplier_range)

    @takes(**channels_with(multipliers=number()))
    def change(self, workspace: Workspace, params: Params) -> None:
        multipliers = {}
        for channel, multiplier in by_channel(params, "multipliers"):
            # A factor of 1 changes nothing: the channel need not be copied.
            if multiplier != 1:
                multipliers[channel] = multiplier
        for multiplier, source, destination in workspace.chosen_channels(multipliers, np.ravel):
            np.multiply(source, np.float32(multiplier), out=destination)


class BrightnessAdditive(ImageTransform):
    """Channels plus a random number; NaN and infinity stay as they are.

    Args:
        mu: the mean of the normal distribution that shifts are drawn from.
        sigma: its standard deviation.
        synchronize_channels: one shift for all channels. It is then drawn **uniformly between mu
            and sigma**, not from the normal distribution, so mu must not be greater than sigma.
            batchgeneratorsv2 0.3.6 does so, and it is kept because the default is True.
        p_per_channel: the probability of each channel.

    Params: ``{"apply_to_channel": [channels], "shift": [one for every channel of the image] or
    None}``; None if no channel was drawn.
    """

    def __init__(
        self, mu: float, sigma: float, synchronize_channels: bool = True, p_per_channel: float = 1.0
    ) -> None:
        self.mu = finite("mu", mu)
        self.sigma = finite("sigma", sigma)
        self.synchronize_channels = synchronize_channels
        self.p_per_channel = probability("p_per_channel", p_per_channel)
        # With synchronized channels mu and sigma are the ends of a range.
        if synchronize_channels and mu > sigma:
            raise ValueError(
                "with synchronize_channels the shift is drawn evenly between mu and sigma, so mu"
                f" must not be greater than sigma, got mu={mu!r}, sigma={sigma!r}"
            )
        if not synchronize_channels and sigma < 0:
            raise ValueError(f"sigma must not be less than 0, got {sigma!r}")

    def draw(self, rng: Generator, shapes: Shapes, context: Context) -> Params:
        count = shapes["image"][0]
        # The channels are drawn before the shifts: a seed's params depend on the order.
        channels = draws.channels_drawn(rng, range(count), self.p_per_channel)
        if not channels:
            return {"apply_to_channel": channels, "shift": None}
        # One shift for every channel, chosen or not, as batchgeneratorsv2 draws them.
        if self.synchronize_channels:
            # Uniformly: see the argument.
            shift = [draws.scalar(rng, (self.mu, self.sigma), context)] * count
        else:
            shift = [draws.normal(rng, self.mu, self.sigma) for _ in range(count)]
        return {"apply_to_channel": channels, "shift": shift}

    @takes(apply_to_channel=CHANNELS, shift=none_without_channels(each_channel(number())))
    def change(self, workspace: Workspace, params: Params) -> None:
        # The param is None if there are no channels; the loop then does not read it.
        shift = params["shift"]
        shifts = {c: shift[c] for c in params["apply_to_channel"] if shift[c] != 0}
        for amount, source, destination in workspace.chosen_channels(shifts, np.ravel):
            np.add(source, np.float32(amount), out=destination)
