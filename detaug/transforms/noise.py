"""Additive normal noise, and Rician noise as in magnitude images of MRI."""

from __future__ import annotations

import math

import numpy as np
from numpy.random import Generator

from detaug.kernels.intensity import scale_around
from detaug.kernels.normals import add_normals
from detaug.kernels.statistics import deviations, moments
from detaug.kernels.threefry import key_words
from detaug.transforms.building import draws
from detaug.transforms.building.base import Context, ImageTransform, Params, RandomScalar, Shapes
from detaug.transforms.building.checks import random_scalar
from detaug.transforms.building.gate import KEY, channels_with, number, takes
from detaug.transforms.building.per_channel import ChannelTransform, by_channel, rescale
from detaug.transforms.building.workspace import Workspace


class GaussianNoise(ChannelTransform):
    """Channels plus ``sigma`` times standard normal numbers, different ones in every channel.

    Args:
        noise_variance: sigma, the noise's standard deviation in intensity units (the argument has
            batchgeneratorsv2's name).
        p_per_channel: the probability of each channel.
        synchronize_channels: one sigma for all channels; else one for each.

    Params: ``{"apply_to_channel": [channels], "sigmas": [one per channel], "key": 64 bits}``. The
    noise of channel c is stream c under the key (`detaug.kernels.normals`), so that a channel's
    noise does not depend on the other channels.
    """

    def __init__(
        self,
        noise_variance: RandomScalar = (0, 0.1),
        p_per_channel: float = 1.0,
        synchronize_channels: bool = False,
    ) -> None:
        super().__init__(p_per_channel, synchronize_channels)
        self.noise_variance = random_scalar("noise_variance", noise_variance, minimum=0)

    def draw(self, rng: Generator, shapes: Shapes, context: Context) -> Params:
        params = self.draw_scalars(rng, shapes, context, "sigmas", self.noise_variance)
        params["key"] = draws.key(rng)
        return params

    @takes(**channels_with(sigmas=number(0)), key=KEY)
    def change(self, workspace: Workspace, params: Params) -> None:
        fields = {}
        for channel, sigma in by_channel(params, "sigmas"):
            # Noise of 0 changes nothing: the channel need not be copied.
            if sigma != 0:
                fields[channel] = (np.float32(sigma), np.uint32(channel))
        # One key serves all channels, since each has a stream of its own.
        low, high = key_words(params["key"])
        for field, source, destination in workspace.chosen_channels(fields, np.ravel):
            sigma, stream = field
            add_normals(source, destination, sigma, low, high, stream)

    kernels = (add_normals,)


class RicianNoise(ImageTransform):
    """The magnitude of a complex signal with normal noise in both of its parts.

    It is ``√((x - min + sigma · real)² + (sigma · imaginary)²)``, shifted and scaled to the image's
    own mean and standard deviation; minimum, mean and standard deviation are those of all channels
    together. An image with a NaN or an infinity becomes NaN throughout.

    Args:
        noise_variance: sigma, the noise's standard deviation in intensity units (the argument has
            batchgeneratorsv2's name).

    Params: ``{"variance": sigma, "key": 64 bits}``. Channel c's real numbers are stream 2 c under
    the key, its imaginary ones stream 2 c + 1 (`detaug.kernels.normals`).
    """

    def __init__(self, noise_variance: RandomScalar = (0.0, 0.1)) -> None:
        self.noise_variance = random_scalar("noise_variance", noise_variance, minimum=0)

    def draw(self, rng: Generator, shapes: Shapes, context: Context) -> Params:
        return {"variance": draws.scalar(rng, self.noise_variance, context), "key": draws.key(rng)}

    @takes(variance=number(0), key=KEY)
    def change(self, workspace: Workspace, params: Params) -> None:
        # Without noise the image stays as it is, to the last bit.
        if params["variance"] == 0:
            return
        source, destination = workspace.source_and_destination("image")
        lowest, _, mean, deviation = moments(source.reshape(-1))
        if not math.isfinite(mean):
            destination.fill(np.nan)
            return
        # Any of the image's values is near enough to the mean for sums around it. Read now, because
        # the destination may be the source.
        pivot = float(source.flat[0]) - float(np.float32(lowest))
        flat = destination.reshape(len(destination), -1)
        sigma = np.float32(params["variance"])
        low_word, high_word = key_words(params["key"])
        with np.errstate(over="ignore", invalid="ignore"):
            np.subtract(source, np.float32(lowest), out=destination)
            for channel, real in enumerate(flat):
                stream = np.uint32(2 * channel)
                add_normals(real, real, sigma, low_word, high_word, stream)
                imaginary = np.zeros_like(real)
                add_normals(imaginary, imaginary, sigma, low_word, high_word, stream + np.uint32(1))
                np.sqrt(real * real + imaginary * imaginary, out=real)
        noisy_mean, noisy_deviation = deviations(flat, pivot)
        # A single voxel does not deviate: it gets the mean.
        factor = 0.0
        if noisy_deviation > 0:
            factor = deviation / noisy_deviation
        rescale(flat.reshape(-1), noisy_mean, factor, mean)

    kernels = (moments, add_normals, deviations, scale_around)
