"""Gaussian blur."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.random import Generator

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


def _check_sigmas(context: ParamContext, value: Any) -> None:
    # Synchronized channels share one list; otherwise each blurred channel has its own.
    if context.transform.synchronize_channels:
        each_axis(SIGMA)(context, value)
        return
    num_applied = sum(bool(applied) for applied in context.params["apply_to_channel"])
    many(each_axis(SIGMA), num_applied)(context, value)


class GaussianBlur(ImageTransform):
    """A convolution with a Gaussian of standard deviation ``sigma`` voxels along every axis.

    The kernel has the odd number of taps that is nearest to ``6 sigma + 0.5``, and is normalised;
    one tap (sigma below 0.25) changes nothing. Beyond its ends an axis is mirrored at its outermost
    voxels' centres; if the kernel reaches further than the axis is long, it is mirrored repeatedly
    (batchgeneratorsv2 raises an error then).

    NaN and infinity spread as far as the kernel reaches.

    Args:
        blur_sigma: sigma in voxels, >= 0. A callable may take ``shape``, that of the image, and
            ``dim``: 1, 2, 3 for the spatial axes, None if all of them get one sigma.
        synchronize_channels: the same sigmas for all channels.
        synchronize_axes: the same sigma for all axes.
        p_per_channel: the probability of each channel.
        benchmark: accepted for compatibility with batchgeneratorsv2, without effect. There, a
            timing chooses between two algorithms whose results differ; here nothing is chosen by
            timing.

    Params: ``{"apply_to_channel": [one bool per channel], "sigmas": [[one per axis] per channel
    that is blurred]}``; with ``synchronize_channels`` sigmas are ``[one per axis]``.
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

    def draw(self, rng: Generator, shapes: Shapes, context: Context) -> Params:
        shape = shapes["image"]
        applied = draws.flags(rng, self.p_per_channel, shape[0])
        offered = {**context, "shape": shape}

        def draw_sigmas() -> list[float]:
            axes = range(1, len(shape))
            return draws.for_axes(rng, self.blur_sigma, offered, axes, self.synchronize_axes)

        if self.synchronize_channels:
            # Drawn also if no channel is blurred.
            return {"apply_to_channel": applied, "sigmas": draw_sigmas()}
        sigmas = [draw_sigmas() for _ in range(sum(applied))]
        return {"apply_to_channel": applied, "sigmas": sigmas}

    @takes(apply_to_channel=each_channel(flag), sigmas=_check_sigmas)
    def change(self, workspace: Workspace, params: Params) -> None:
        channels = [c for c, applied in enumerate(params["apply_to_channel"]) if applied]
        # One list of sigmas for each blurred channel, in order; params hold a shared list once.
        sigmas_of_channels = params["sigmas"]
        if self.synchronize_channels:
            sigmas_of_channels = [params["sigmas"]] * len(channels)
        shape = workspace["image"].shape[1:]
        weights = {}
        for channel, sigmas in zip(channels, sigmas_of_channels, strict=True):
            channel_weights = blur_weights(shape, sigmas)
            # Filters of one tap change nothing: the channel need not be copied.
            if any(len(taps) > 1 for taps in channel_weights):
                weights[channel] = channel_weights
        for channel_weights, before, after in workspace.chosen_channels(weights, as_volume):
            convolve(before, channel_weights, "reflect", after)

    kernels = (pick, convolve_padded)


def kernel_size(sigma: float) -> int:
    """Return the odd number of taps that is nearest to ``6 sigma + 0.5``, at least 1.

    The rule is batchgeneratorsv2's; ``sigma`` is in voxels.
    """
    wanted = sigma * 6.0 + 0.5
    size = round(wanted)
    is_even = size % 2 == 0
    # Sizes are odd: take the odd neighbour that is nearer to the wanted size.
    if is_even and wanted >= size:
        size += 1
    elif is_even:
        size -= 1
    return max(size, 1)


def gaussian_weights(sigma: float, radius: int) -> np.ndarray:
    """Return a normalised Gaussian kernel's weights at distances 0 to radius, as float32.

    They are computed in float64. ``sigma`` and ``radius`` are in voxels.
    """
    if radius == 0:
        return np.ones(1, np.float32)
    # Without NumPy, whose exponential differs between CPUs.
    heights = [exponential(-0.5 * (distance / sigma) ** 2) for distance in range(radius + 1)]
    # One after another: the order of NumPy's additions depends on the CPU's vectors.
    total = heights[0]
    for height in heights[1:]:
        total += 2.0 * height
    return np.array([height / total for height in heights], np.float32)


def blur_weights(
    shape: Sequence[int], sigmas: Sequence[float]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the weights along the three axes of the volume that kernels see of an image.

    Args:
        shape: the image's spatial shape, (X, Y[, Z]).
        sigmas: in voxels, one for each axis.
    """
    sigma_x, sigma_y, sigma_z = per_axis(sigmas, shape, 0.0)
    return _axis_weights(sigma_x), _axis_weights(sigma_y), _axis_weights(sigma_z)


def _axis_weights(sigma: float) -> np.ndarray:
    return gaussian_weights(sigma, kernel_size(sigma) // 2)
