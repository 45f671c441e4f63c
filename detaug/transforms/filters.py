"""Filters over a voxel's neighbourhood: median and sharpening."""

from __future__ import annotations

from typing import Any

import numpy as np

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
    """Replaces each voxel by the median of a box around it.

    The box of ``size`` voxels per axis begins ``size // 2`` before its voxel; of an even number of
    values the upper one of the two in the middle is taken; beyond its ends an axis is mirrored at
    its outermost voxels' outer faces. All as SciPy's ``median_filter`` has it. NaN counts as larger
    than infinity (as less than its negative if its sign is set).

    Args:
        filter_size: the size in voxels, 1 to 15, or (low, high): even draws from low ... high - 1.
        p_same_for_each_channel: the probability that all channels get one size; drawn for a range
            only with effect.
        p_per_channel: the probability of each channel.

    Params: ``{"filter_sizes": [one per channel], "apply_channel": [one bool per channel]}``.
    """

    def __init__(
        self,
        filter_size: int | tuple[int, int],
        p_same_for_each_channel: float = 0.0,
        p_per_channel: float = 1.0,
    ) -> None:
        self.filter_size = _sizes(filter_size)
        self.p_same_for_each_channel = probability(
            "p_same_for_each_channel", p_same_for_each_channel
        )
        self.p_per_channel = probability("p_per_channel", p_per_channel)

    def draw(self, rng: np.random.Generator, shapes: Shapes, context: Context) -> Params:
        channels = shapes["image"][0]
        same = draws.happens(rng, self.p_same_for_each_channel)
        ends = self.filter_size if isinstance(self.filter_size, tuple) else (self.filter_size,) * 2
        sizes = [draws.integer_below(rng, *ends) for _ in range(1 if same else channels)]
        applied = [draws.happens(rng, self.p_per_channel) for _ in range(channels)]
        return {"filter_sizes": sizes * channels if same else sizes, "apply_channel": applied}

    @takes(filter_sizes=each_channel(integer(1, LARGEST)), apply_channel=each_channel(flag))
    def change(self, workspace: Workspace, params: Params) -> None:
        shape = workspace["image"].shape[1:]
        pairs = zip(params["apply_channel"], params["filter_sizes"], strict=True)
        sizes = {c: int(size) for c, (applied, size) in enumerate(pairs) if applied and size != 1}
        for c, before, after in workspace.chosen_channels(
            sizes if max(shape) > 1 else (), as_volume
        ):
            median_filter(before, per_axis([sizes[c]] * len(shape), shape, 1), after)

    kernels = (pick, run_program)


class Sharpening(ImageTransform):
    """Adds ``strength`` times the negative Laplacian: the sum of a voxel's differences to its
    nearest neighbours.

    Beyond the image's ends stand its outermost voxels. NaN and infinity spread to the nearest
    neighbours.

    Args:
        strength: the Laplacian's weight.
        p_same_for_each_channel: the probability that all channels get the same strength and
            clamping.
        p_per_channel: the probability of each channel.
        p_clamp_intensities: the probability of limiting a channel to the least and largest value
            that it had before.

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

    def draw(self, rng: np.random.Generator, shapes: Shapes, context: Context) -> Params:
        channels = shapes["image"][0]
        if draws.happens(rng, self.p_same_for_each_channel):
            strengths = [draws.scalar(rng, self.strength, context)] * channels
            clamped = [draws.happens(rng, self.p_clamp_intensities)] * channels
        else:
            strengths = [
                draws.scalar(rng, self.strength, {**context, "channel": c}) for c in range(channels)
            ]
            clamped = [draws.happens(rng, self.p_clamp_intensities) for _ in range(channels)]
        applied = [draws.happens(rng, self.p_per_channel) for _ in range(channels)]
        return {"strengths": strengths, "clamp_intensities": clamped, "apply_channel": applied}

    @takes(
        strengths=each_channel(number()),
        clamp_intensities=each_channel(flag),
        apply_channel=each_channel(flag),
    )
    def change(self, workspace: Workspace, params: Params) -> None:
        alone = max(workspace["image"].shape[1:]) == 1
        pairs = zip(params["apply_channel"], params["strengths"], strict=True)
        strengths = {c: float(s) for c, (applied, s) in enumerate(pairs) if applied and s != 0.0}
        for c, before, after in workspace.chosen_channels(() if alone else strengths, as_volume):
            limits = (
                least_and_largest(flat_planes(before)) if params["clamp_intensities"][c] else None
            )
            sharpen_padded(padded(before, [(1, 1)] * 3, "edge"), after, strengths[c])
            if limits is not None:
                clamp(after.reshape(-1), *map(np.float32, limits))

    kernels = (pick, sharpen_padded, least_and_largest, clamp)


def _sizes(wanted: Any) -> Any:
    """A checked size, or a range of them."""
    if not isinstance(wanted, (tuple, list)):
        return checks.integer("filter_size", wanted, 1, LARGEST)
    low, high = integer_range("filter_size", wanted, minimum=1)
    if low == high or high > LARGEST + 1:
        raise ValueError(
            "filter_size as a range must be (low, high), high not included and at most "
            f"{LARGEST + 1}, got {wanted!r}"
        )
    return low, high
