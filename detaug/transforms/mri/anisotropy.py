"""Images as if they had been taken in thick slices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from detaug.kernels.low_resolution import interpolate
from detaug.transforms.building import checks, draws
from detaug.transforms.building.base import Context, Params, RandomScalar, Shapes
from detaug.transforms.building.gate import axis, channels_with, number, takes
from detaug.transforms.building.per_channel import ChannelTransform, by_channel
from detaug.transforms.building.workspace import Workspace


class Anisotropy(ChannelTransform):
    """Takes slices along one axis, ``downsampling`` voxels apart, and interpolates linearly between
    them.

    An axis of n voxels gets ``floor(n / downsampling)`` slices, at least one, centred on it. Voxels
    beyond the outermost slices have their value. Formula and defaults are those of TorchIO's
    ``RandomAnisotropy`` (after Billot et al., "Partial volume segmentation of brain MRI scans of
    any resolution and contrast", MICCAI 2020), which gives 0 to voxels more than half a slice
    beyond the outermost ones. Labels stay what they are.

    Args:
        axes: spatial axes of which one is drawn; None for all.
        downsampling: voxels from one slice to the next, at least 1. A callable may ask for
            ``channel``, which is None where channels are synchronised.
        profile: what a slice sees: "point", the nearest voxel, as in TorchIO (halfway between two,
            the upper one); or "box", the mean over its thickness, where slices touch each other, so
            that small structures are blurred and not skipped.
        synchronize_channels: one axis and distance for all channels; else one for each.
        p_per_channel: the probability of each channel.

    NaN and infinity spread over the slices that hold them and to those next to them. Params:
        ``{"apply_to_channel":
    [channels], "axes": [one for each of them], "downsampling": [one for each of them]}``.

    Raises:
        ValueError: an axis that there is not, or a distance below 1.
    """

    def __init__(
        self,
        axes: Sequence[int] | None = None,
        downsampling: RandomScalar = (1.5, 5),
        profile: str = "point",
        synchronize_channels: bool = True,
        p_per_channel: float = 1.0,
    ) -> None:
        super().__init__(p_per_channel, synchronize_channels)
        self.axes = None if axes is None else checks.axes("axes", axes)
        if self.axes == ():
            raise ValueError("axes must name at least one axis, or be None for all")
        self.downsampling = checks.random_scalar("downsampling", downsampling, minimum=1)
        self.profile = checks.one_of("profile", profile, ("point", "box"))

    def draw(self, rng: np.random.Generator, shapes: Shapes, context: Context) -> Params:
        dims = len(shapes["image"]) - 1
        axes = range(dims) if self.axes is None else checks.axes("axes", self.axes, dims)

        def drawn(channel: int | None) -> tuple[int, float]:
            return draws.choice(rng, axes), draws.scalar(
                rng, self.downsampling, {**context, "channel": channel}
            )

        made = self.draw_channels(rng, shapes, "slices", drawn)
        slices = made.pop("slices")
        return {
            **made,
            "axes": [axis for axis, _ in slices],
            "downsampling": [distance for _, distance in slices],
        }

    @takes(**channels_with(axes=axis, downsampling=number(1)))
    def change(self, workspace: Workspace, params: Params) -> None:
        shape = workspace["image"].shape[1:]
        drawn = by_channel(params, "axes", "downsampling")
        wanted = {c: (a, float(d)) for c, a, d in drawn if d != 1 and shape[a] > 1}
        for c, before, after in workspace.chosen_channels(wanted):
            axis, distance = wanted[c]
            rows = (-1, shape[axis], math.prod(shape[axis + 1 :]))
            lower, weight, *slices = _slice_tables(shape[axis], distance, self.profile == "box")
            interpolate(
                _sliced(before.reshape(rows), *slices), after.reshape(rows), lower, weight, True
            )

    kernels = (interpolate,)


def _slice_tables(n: int, distance: float, box: bool) -> tuple[Any, ...]:
    """For each voxel of an axis the slice before it and the weight of the next one; for each slice
    its first voxel, and the shares that it and those behind it have, float32.
    """
    count = max(1, math.floor(n / distance))
    origin = (n - 1) / 2.0 - (count - 1) / 2.0 * distance
    centres = origin + np.arange(count) * distance
    if box:
        # a voxel reaches from half a voxel before its place to half a voxel behind it
        begin = np.maximum(centres - distance / 2.0 + 0.5, 0.0)
        end = np.minimum(centres + distance / 2.0 + 0.5, float(n))
        first = np.floor(begin).astype(np.int64)
        sizes = np.minimum(np.ceil(end).astype(np.int64), n) - first
        shares = []
        for c in range(count):
            voxels = first[c] + np.arange(sizes[c])
            overlaps = np.minimum(voxels + 1.0, end[c]) - np.maximum(voxels, begin[c])
            shares.append((overlaps / (end[c] - begin[c])).astype(np.float32))
    else:
        first = np.clip(np.floor(centres + 0.5).astype(np.int64), 0, n - 1)
        shares = [np.ones(1, np.float32)] * count
    places = np.clip((np.arange(n) - origin) / distance, 0.0, count - 1.0)
    lower = np.floor(places).astype(np.int64)
    return lower, (places - lower).astype(np.float32), first, shares


def _sliced(rows: np.ndarray, first: np.ndarray, shares: Sequence[np.ndarray]) -> np.ndarray:
    """Slices along the middle axis: sums of voxels by their shares, one after another."""
    slices = rows.take(first, axis=1)
    slices *= np.array([each[0] for each in shares])[:, None]
    for c, each in enumerate(shares):
        for n in range(1, len(each)):
            slices[:, c] += rows[:, first[c] + n] * each[n]
    return slices
