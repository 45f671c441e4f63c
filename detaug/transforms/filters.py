"""Filters over a voxel's neighbourhood: median and sharpening."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.random import Generator

from detaug.kernels.convolution import sharpen_padded
from detaug.kernels.intensity import clamp
from detaug.kernels.median import LARGEST, median_filter, run_program
from detaug.kernels.statistics import least_and_largest
from detaug.kernels.voxels import padded, pick
from detaug.transforms.building import checks, draws
from detaug.transforms.building.base import Context, ImageTransform, Params, RandomScalar, Shapes
from detaug.transforms.building.checks import integer_range, probability, random_scalar
from detaug.transforms.building.gate import each_channel, flag, integer, number, takes
from detaug.transforms.building.per_channel import as_volume, flat_planes, per_axis
from detaug.transforms.building.workspace import Workspace


class MedianFilter(ImageTransform):
    """The median of a box around each voxel.

    As in SciPy's ``median_filter``, the box of ``size`` voxels per axis begins ``size // 2`` before
    its voxel; of an even number of values, the larger one of the two in the middle is used; beyond
    its ends an axis is mirrored at its outermost voxels' outer faces. NaN is treated as larger than
    infinity (with its sign bit set, as less than negative infinity).

    Args:
        filter_size: the size in voxels, 1 to 15, or (low, high): uniform draws from low to high -
            1.
        p_same_for_each_channel: the probability that all channels get one size; without effect
            unless ``filter_size`` is a range.
        p_per_channel: the probability of each channel.

    Params: ``{"filter_sizes": [one per channel], "apply_channel": [one bool per channel]}``.
    """

    def __init__(
        self,
        filter_size: int | tuple[int, int],
        p_same_for_each_channel: float = 0.0,
        p_per_channel: float = 1.0,
    ) -> None:
        self.filter_size = _checked_size(filter_size)
        self.p_same_for_each_channel = probability(
            "p_same_for_each_channel", p_same_for_each_channel
        )
        self.p_per_channel = probability("p_per_channel", p_per_channel)

    def draw(self, rng: Generator, shapes: Shapes, context: Context) -> Params:
        channels = shapes["image"][0]
        if draws.happens(rng, self.p_same_for_each_channel):
            sizes = [self._draw_size(rng)] * channels
        else:
            sizes = [self._draw_size(rng) for _ in range(channels)]
        # Drawn after the sizes, which every channel draws, as in batchgeneratorsv2.
        applied = draws.flags(rng, self.p_per_channel, channels)
        return {"filter_sizes": sizes, "apply_channel": applied}

    def _draw_size(self, rng: Generator) -> int:
        if isinstance(self.filter_size, tuple):
            low, high = self.filter_size
            return draws.integer_below(rng, low, high)
        return self.filter_size

    @takes(filter_sizes=each_channel(integer(1, LARGEST)), apply_channel=each_channel(flag))
    def change(self, workspace: Workspace, params: Params) -> None:
        shape = workspace["image"].shape[1:]
        sizes = {}
        for channel, applied in enumerate(params["apply_channel"]):
            size = params["filter_sizes"][channel]
            # A box of one voxel changes nothing.
            if applied and size != 1:
                sizes[channel] = size
        if max(shape) == 1:
            # A single voxel is its own median.
            return
        for size, before, after in workspace.chosen_channels(sizes, as_volume):
            # An axis of one voxel is not filtered.
            box = per_axis([size] * len(shape), shape, 1)
            median_filter(before, box, after)

    kernels = (pick, run_program)


class Sharpening(ImageTransform):
    """The image plus ``strength`` times the sum of a voxel's differences to its nearest neighbours.

    That sum is the negative Laplacian. Beyond the image's ends its outermost voxels are repeated.
    NaN and infinity spread to the nearest neighbours.

    Args:
        strength: the Laplacian's weight.
        p_same_for_each_channel: the probability that all channels get the same strength and
            clamping.
        p_per_channel: the probability of each channel.
        p_clamp_intensities: the probability that a channel is limited to the least and largest
            value that it had before.

    Params: ``{"strengths": [...], "clamp_intensities": [bools], "apply_channel": [bools]}``, one
    per channel each.
    """

    def __init__(
        self,
        strength: RandomScalar = 0.2,
        p_same_for_each_channel: float = 0.0,
        p_per_channel: float = 1.0,
        p_clamp_intensities: float = 0,
    ) -> None:
        self.strength = random_scalar("strength", strength)
        self.p_same_for_each_channel = probability(
            "p_same_for_each_channel", p_same_for_each_channel
        )
        self.p_per_channel = probability("p_per_channel", p_per_channel)
        self.p_clamp_intensities = probability("p_clamp_intensities", p_clamp_intensities)

    def draw(self, rng: Generator, shapes: Shapes, context: Context) -> Params:
        channels = shapes["image"][0]
        if draws.happens(rng, self.p_same_for_each_channel):
            strengths = [draws.scalar(rng, self.strength, context)] * channels
            # All channels share this draw, as they share the strength.
            clamped = [draws.happens(rng, self.p_clamp_intensities)] * channels
        else:
            strengths = []
            for channel in range(channels):
                offered = {**context, "channel": channel}
                strengths.append(draws.scalar(rng, self.strength, offered))
            clamped = draws.flags(rng, self.p_clamp_intensities, channels)
        applied = draws.flags(rng, self.p_per_channel, channels)
        return {"strengths": strengths, "clamp_intensities": clamped, "apply_channel": applied}

    @takes(
        strengths=each_channel(number()),
        clamp_intensities=each_channel(flag),
        apply_channel=each_channel(flag),
    )
    def change(self, workspace: Workspace, params: Params) -> None:
        if max(workspace["image"].shape[1:]) == 1:
            # A single voxel has no neighbours.
            return
        changes = {}
        for channel, applied in enumerate(params["apply_channel"]):
            strength = params["strengths"][channel]
            if applied and strength != 0.0:
                changes[channel] = (float(strength), params["clamp_intensities"][channel])
        for change, before, after in workspace.chosen_channels(changes, as_volume):
            strength, is_clamped = change
            limits = None
            if is_clamped:
                # Read before sharpening, which may write to the same array.
                limits = least_and_largest(flat_planes(before))
            # A padded copy: what is written must not be read as a neighbour.
            sharpen_padded(padded(before, [(1, 1)] * 3, "edge"), after, strength)
            if limits is not None:
                low, high = limits
                clamp(after.reshape(-1), np.float32(low), np.float32(high))

    kernels = (pick, sharpen_padded, least_and_largest, clamp)


def _checked_size(wanted: Any) -> int | tuple[int, int]:
    """Return a size in voxels, or a range (low, high) of sizes, checked."""
    if not isinstance(wanted, (tuple, list)):
        return checks.integer("filter_size", wanted, 1, LARGEST)
    low, high = integer_range("filter_size", wanted, minimum=1)
    # high is not included: equal ends would leave no size to draw.
    if low == high or high > LARGEST + 1:
        raise ValueError(
            "filter_size as a range must be (low, high), high not included and at most"
            f" {LARGEST + 1}, got {wanted!r}"
        )
    return low, high
