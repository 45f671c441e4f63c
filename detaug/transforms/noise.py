"""Additive noise."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from detaug.kernels.compiling import Kernel
from detaug.kernels.normals import add_normals
from detaug.kernels.threefry import key_words
from detaug.transforms import draws
from detaug.transforms.base import ImageTransform, Params, Shapes
from detaug.transforms.checks import probability, random_scalar
from detaug.transforms.draws import RandomScalar
from detaug.transforms.workspace import Workspace


class GaussianNoise(ImageTransform):
    """Adds ``sigma`` times standard normals, other ones in every channel.

    Args:
        noise_variance: sigma, the noise's standard deviation in intensity units (batchgeneratorsv2 gives it this name).
        p_per_channel: the probability of each channel.
        synchronize_channels: one sigma for all channels; else one for each.

    Params: ``{"apply_to_channel": [channels], "sigmas": [one per channel], "key": 64 bits}``. The field of channel c is
    that of stream c under the key (`detaug.kernels.normals`), so that a channel's noise does not depend on the others.
    """

    def __init__(
        self,
        noise_variance: RandomScalar = (0, 0.1),
        p_per_channel: float = 1.0,
        synchronize_channels: bool = False,
    ) -> None:
        self.noise_variance = random_scalar("noise_variance", noise_variance, minimum=0)
        self.p_per_channel = probability("p_per_channel", p_per_channel)
        self.synchronize_channels = synchronize_channels

    def draw(self, rng: np.random.Generator, shapes: Shapes, context: Mapping[str, Any]) -> Params:
        channels = draws.channels_drawn(rng, range(shapes["image"][0]), self.p_per_channel)
        if self.synchronize_channels:
            sigmas = [draws.scalar(rng, self.noise_variance, context)] * len(channels) if channels else []
        else:
            sigmas = [draws.scalar(rng, self.noise_variance, context) for _ in channels]
        return {"apply_to_channel": channels, "sigmas": sigmas, "key": draws.key(rng)}

    def change(self, workspace: Workspace, params: Params) -> None:
        sigmas = dict(zip(params["apply_to_channel"], params["sigmas"], strict=True))
        if not any(sigmas.values()):
            return
        low, high = key_words(params["key"])
        source, destination = workspace.source_and_destination("image")
        for c in range(len(source)):
            if sigmas.get(c):
                flat = source[c].reshape(-1), destination[c].reshape(-1)
                add_normals(*flat, np.float32(sigmas[c]), low, high, np.uint32(c))
            elif destination is not source:
                destination[c] = source[c]

    def kernels(self) -> Iterable[Kernel]:
        return (add_normals,)
