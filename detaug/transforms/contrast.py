"""Contrast: intensities moved away from a channel's mean, towards it, or mirrored at it."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.random import Generator

from detaug.kernels.intensity import clamp, scale_around
from detaug.kernels.statistics import moments
from detaug.transforms.building import draws
from detaug.transforms.building.base import Context, ImageTransform, Params, RandomScalar, Shapes
from detaug.transforms.building.checks import probability, random_scalar
from detaug.transforms.building.gate import (
    CHANNELS,
    flag,
    for_each,
    none_without_channels,
    number,
    takes,
)
from detaug.transforms.building.per_channel import ChannelTransform, by_channel
from detaug.transforms.building.workspace import Workspace

#: Voxels that are still in the CPU's cache when they are clamped.
_CHUNK = 2**15


class BGContrast:
    """batchgenerators' contrast factor: half of the time below 1 (if the range allows), else above.

    Pass it, or its `sample_contrast`, to `Contrast` as ``contrast_range``.

    Args:
        contrast_range: (low, high), or a callable that returns the factor (it may take ``rng``).
    """

    def __init__(self, contrast_range: tuple[float, float] | Callable[..., float]) -> None:
        checked = random_scalar("contrast_range", contrast_range)
        # A single number has no parts below and above 1 to choose between.
        if isinstance(checked, float):
            raise TypeError(
                f"contrast_range must be (low, high) or a callable, got {contrast_range!r}"
            )
        if isinstance(checked, tuple) and checked[1] < 1:
            # At least half of the draws are from the part above 1.
            raise ValueError(f"contrast_range must reach up to 1 or more, got {contrast_range!r}")
        self.contrast_range = checked

    def sample_contrast(self, rng: Generator) -> float:
        """Draw a contrast factor."""
        if callable(self.contrast_range):
            return draws.scalar(rng, self.contrast_range, {})
        low, high = self.contrast_range
        # `happens` draws even if the range has no part below 1, as batchgenerators does.
        if draws.happens(rng, 0.5) and low < 1:
            return draws.uniform(rng, low, 1.0)
        return draws.uniform(rng, max(low, 1.0), high)

    def __call__(self, rng: Generator) -> float:
        return self.sample_contrast(rng)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(contrast_range={self.contrast_range!r})"


class Contrast(ChannelTransform):
    """``(x - mean) · factor + mean`` for channels.

    A channel with a NaN or an infinity becomes NaN throughout.

    Args:
        contrast_range: the factor; nnU-Net uses `BGContrast`.
        preserve_range: clamp to the minimum and maximum that the channel had.
        synchronize_channels: one factor for all channels; else one for each.
        p_per_channel: the probability of each channel.

    Params: ``{"apply_to_channel": [channels], "multipliers": [one per channel] or None}``; None if
    no channel was drawn.
    """

    def __init__(
        self,
        contrast_range: RandomScalar,
        preserve_range: bool,
        synchronize_channels: bool,
        p_per_channel: float = 1.0,
    ) -> None:
        super().__init__(p_per_channel, synchronize_channels)
        self.contrast_range = random_scalar("contrast_range", contrast_range)
        self.preserve_range = preserve_range

    def draw(self, rng: Generator, shapes: Shapes, context: Context) -> Params:
        params = self.draw_scalars(rng, shapes, context, "multipliers", self.contrast_range)
        if not params["multipliers"]:
            params["multipliers"] = None
        return params

    @takes(
        apply_to_channel=CHANNELS,
        multipliers=none_without_channels(for_each("apply_to_channel", number())),
    )
    def change(self, workspace: Workspace, params: Params) -> None:
        factors = {}
        for channel, factor in by_channel(params, "multipliers"):
            # A factor of 1 would only copy the channel and round it.
            if factor != 1:
                factors[channel] = factor
        for factor, source, destination in workspace.chosen_channels(factors, np.ravel):
            stretch_around_mean(source, destination, factor, keep_range=self.preserve_range)

    kernels = (moments, scale_around, clamp)


class InvertImage(ImageTransform):
    """Intensities of channels, mirrored at the channel's mean.

    A channel with a NaN or an infinity becomes NaN throughout.

    Args:
        p_invert_image: the probability that anything is inverted.
        p_synchronize_channels: the probability that, if so, all channels are inverted.
        p_per_channel: the probability of each channel otherwise.

    Params: ``{"apply": bool, "apply_to_channel": [channels]}``.
    """

    def __init__(
        self, p_invert_image: float, p_synchronize_channels: float = 1.0, p_per_channel: float = 1.0
    ) -> None:
        self.p_invert_image = probability("p_invert_image", p_invert_image)
        self.p_synchronize_channels = probability("p_synchronize_channels", p_synchronize_channels)
        self.p_per_channel = probability("p_per_channel", p_per_channel)

    def draw(self, rng: Generator, shapes: Shapes, context: Context) -> Params:
        # Later draws are made only if earlier ones have not decided, as in batchgeneratorsv2.
        count = shapes["image"][0]
        if not draws.happens(rng, self.p_invert_image):
            return {"apply": False, "apply_to_channel": []}
        if draws.happens(rng, self.p_synchronize_channels):
            return {"apply": True, "apply_to_channel": list(range(count))}
        channels = draws.channels_drawn(rng, range(count), self.p_per_channel)
        return {"apply": True, "apply_to_channel": channels}

    @takes(apply=flag, apply_to_channel=CHANNELS)
    def change(self, workspace: Workspace, params: Params) -> None:
        if not params["apply"]:
            return
        factors = dict.fromkeys(params["apply_to_channel"], -1.0)
        for factor, source, destination in workspace.chosen_channels(factors, np.ravel):
            stretch_around_mean(source, destination, factor, keep_range=False)

    kernels = (moments, scale_around)


def stretch_around_mean(
    source: np.ndarray, destination: np.ndarray, factor: float, *, keep_range: bool
) -> None:
    """Write ``(source - mean) · factor + mean`` of one channel; NaN if the mean is not finite.

    Args:
        source: float32, flat.
        destination: float32, flat; it may be the source.
        factor: the factor.
        keep_range: clamp the result to the source's range.
    """
    low, high, center, _ = moments(source)
    if not math.isfinite(center):
        # Without a finite mean no voxel has a defined result.
        destination.fill(np.nan)
        return
    # Kernels compute in float32, as batchgeneratorsv2 does.
    rounded_center = np.float32(center)
    rounded_factor = np.float32(factor)
    for start in range(0, len(source), _CHUNK):
        before = source[start : start + _CHUNK]
        after = destination[start : start + _CHUNK]
        scale_around(before, after, rounded_center, rounded_factor, rounded_center)
        if keep_range:
            clamp(after, np.float32(low), np.float32(high))
