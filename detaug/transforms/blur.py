"""Gaussian blur."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from detaug.kernels.convolution import convolve, convolve_padded
from detaug.kernels.scalars import exponential
from detaug.kernels.voxels import pick
from detaug.transforms.building import draws
from detaug.transforms.building.base import Context, ImageTransform, Params, RandomScalar, Shapes
from detaug.transforms.building.checks import probability, random_scalar
from detaug.transforms.building.gate import (
    LARGEST_SIGMA,
    SIGMA,
    ParamContext,
    each_axis,
    each_channel,
    flag,
    many,
    takes,
)
from detaug.transforms.building.per_channel import as_volume, per_axis
from detaug.transforms.building.workspace import Workspace


def _check_sigmas(given: ParamContext, value: Any) -> None:
    applied = sum(map(bool, given.params["apply_to_channel"]))
    wanted = (
        each_axis(SIGMA)
        if given.transform.synchronize_channels
        else many(each_axis(SIGMA), applied)
    )
    wanted(given, value)


class GaussianBlur(ImageTransform):
    """Convolves with a Gaussian of standard deviation ``sigma`` voxels along every axis.

    The kernel has as many taps as the odd number nearest to ``6 sigma + 0.5`` and is normalised;
    one tap (sigma below 0.25) changes nothing. Beyond its ends an axis is mirrored at its outermost
    voxels' centres; where the kernel reaches further than the axis is long, it is mirrored again
    and again (batchgeneratorsv2 raises an error there).

    NaN and infinity spread over as many voxels as the kernel reaches.

    Args:
        blur_sigma: sigma in voxels, >= 0. A callable may ask for ``shape``, that of the image, and
            ``dim``: 1, 2, 3 for the spatial axes, None where all of them get one sigma.
        synchronize_channels: the same sigmas for all channels.
        synchronize_axes: the same sigma for all axes.
        p_per_channel: the probability of each channel.
        benchmark: taken for batchgeneratorsv2's sake and without effect. There it lets a timing
            choose between two algorithms, whose results differ; here nothing is ever chosen by
            timing.

    Params: ``{"apply_to_channel": [one bool per channel], "sigmas": [[one per axis] per channel
    that is blurred]}``;
    with ``synchronize_channels`` sigmas are ``[one per axis]``.
    """

    def __init__(
        self,
        blur_sigma: RandomScalar = (1, 5),
        synchronize_channels: bool = False,
        synchronize_axes: bool = False,
        p_per_channel: float = 1,
        benchmark: bool = False,
    ) -> None:
        self.blur_sigma = random_scalar("blur_sigma", blur_sigma, minimum=0, maximum=LARGEST_SIGMA)
        self.synchronize_channels = synchronize_channels
        self.synchronize_axes = synchronize_axes
        self.p_per_channel = probability("p_per_channel", p_per_channel)
        self.benchmark = benchmark

    def draw(self, rng: np.random.Generator, shapes: Shapes, context: Context) -> Params:
        shape = shapes["image"]
        applied = [draws.happens(rng, self.p_per_channel) for _ in range(shape[0])]
        known, axes = {**context, "shape": shape}, range(1, len(shape))
        sigmas = [
            draws.for_axes(rng, self.blur_sigma, known, axes, self.synchronize_axes)
            for _ in range(1 if self.synchronize_channels else sum(applied))
        ]
        return {
            "apply_to_channel": applied,
            "sigmas": sigmas[0] if self.synchronize_channels else sigmas,
        }

    @takes(apply_to_channel=each_channel(flag), sigmas=_check_sigmas)
    def change(self, workspace: Workspace, params: Params) -> None:
        channels = [c for c, applied in enumerate(params["apply_to_channel"]) if applied]
        each = [params["sigmas"]] * len(channels) if self.synchronize_channels else params["sigmas"]
        shape = workspace["image"].shape[1:]
        weights = {c: blur_weights(shape, sigmas) for c, sigmas in zip(channels, each, strict=True)}
        weights = {c: found for c, found in weights.items() if any(len(axis) > 1 for axis in found)}
        for c, before, after in workspace.chosen_channels(weights, as_volume):
            convolve(before, weights[c], "reflect", after)

    kernels = (pick, convolve_padded)


def kernel_size(sigma: float, truncate: float = 6.0) -> int:
    """The odd number of taps nearest to ``truncate * sigma + 0.5``, at least 1: batchgeneratorsv2's
    rule.
    """
    wanted = sigma * truncate + 0.5
    size = round(wanted)
    if size % 2 == 0:
        size += 1 if wanted >= size else -1
    return max(size, 1)


def gaussian_weights(sigma: float, radius: int) -> np.ndarray:
    """A normalised Gaussian kernel's weights at distance 0 ... radius, computed in float64, as
    float32.
    """
    if radius == 0:
        return np.ones(1, np.float32)
    heights = [exponential(-0.5 * (distance / sigma) ** 2) for distance in range(radius + 1)]
    total = heights[0]
    for height in heights[1:]:
        total += 2.0 * height
    return np.array([height / total for height in heights], np.float32)


def blur_weights(
    shape: Sequence[int], sigmas: Sequence[float]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The weights along the three axes of the image's volume."""
    x, y, z = (
        gaussian_weights(sigma, kernel_size(sigma) // 2) for sigma in per_axis(sigmas, shape, 0.0)
    )
    return x, y, z
