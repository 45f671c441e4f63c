"""Images as if they had been taken in thick slices."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.random import Generator

from detaug.kernels.low_resolution import interpolate
from detaug.transforms.building import checks, draws, gate
from detaug.transforms.building.base import Context, Params, RandomScalar, Shapes
from detaug.transforms.building.gate import channels_with, number, takes
from detaug.transforms.building.per_channel import ChannelTransform, by_channel
from detaug.transforms.building.workspace import Workspace


class Anisotropy(ChannelTransform):
    """Slices along one axis, ``downsampling`` voxels apart, and linear interpolation between them.

    An axis of n voxels gets ``floor(n / downsampling)`` slices, at least one, centred on it. Voxels
    beyond the outermost slices have their value. Formula and defaults are those of TorchIO's
    ``RandomAnisotropy`` (after Billot et al., "Partial volume segmentation of brain MRI scans of
    any resolution and contrast", MICCAI 2020), which gives 0 to voxels more than half a slice
    beyond the outermost ones. Labels stay what they are.

    Args:
        axes: the spatial axes to draw one from; None for all.
        downsampling: voxels from one slice to the next, at least 1. A callable may ask for
            ``channel``, which is None where channels are synchronised.
        profile: a slice's value: "point", that of the nearest voxel, as in TorchIO (halfway between
            two, the upper one); or "box", the mean over its thickness. Boxes touch each other, so
            small structures are blurred, not skipped.
        synchronize_channels: True: one axis and distance for all channels. False: one for each.
        p_per_channel: the probability of each channel.

    NaN and infinity spread over the slices that hold them and to those next to them.

    Params: ``{"apply_to_channel": [channels], "axes": [one for each of them], "downsampling": [one
    for each of them]}``.

    Raises:
        ValueError: an axis that does not exist, or a distance below 1.
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
        self.axes = checks.optional_axes("axes", axes)
        if self.axes == ():
            raise ValueError("axes must name at least one axis, or be None for all")
        self.downsampling = checks.random_scalar("downsampling", downsampling, minimum=1)
        self.profile = checks.one_of("profile", profile, ("point", "box"))

    def draw(self, rng: Generator, shapes: Shapes, context: Context) -> Params:
        axes = checks.axes_of_sample("axes", self.axes, len(shapes["image"]) - 1)

        def axis_and_distance(channel: int | None) -> tuple[int, float]:
            axis = draws.choice(rng, axes)
            distance = draws.scalar(rng, self.downsampling, {**context, "channel": channel})
            return axis, distance

        params = self.draw_channels(rng, shapes, "slices", axis_and_distance)
        # Drawn as pairs and split here: params hold one list of axes and one of distances.
        slices = params.pop("slices")
        params["axes"] = [axis for axis, _ in slices]
        params["downsampling"] = [distance for _, distance in slices]
        return params

    @takes(**channels_with(axes=gate.axis, downsampling=number(1)))
    def change(self, workspace: Workspace, params: Params) -> None:
        shape = workspace["image"].shape[1:]
        changes = {}
        for channel, axis, distance in by_channel(params, "axes", "downsampling"):
            # With a slice for each voxel the image stays as it is, and need not be copied.
            if distance != 1 and shape[axis] > 1:
                changes[channel] = (axis, float(distance))
        for change, source, destination in workspace.chosen_channels(changes):
            self._degrade(source, destination, *change)

    def _degrade(
        self, source: np.ndarray, destination: np.ndarray, axis: int, distance: float
    ) -> None:
        """Degrade one channel along an axis; both arrays may be one.

        Args:
            distance: from one slice to the next, in voxels.
        """
        shape = source.shape
        n = shape[axis]
        # The kernel and the sums work along the middle one of three axes.
        rows = (-1, n, math.prod(shape[axis + 1 :]))
        centres = _slice_centres(n, distance)
        if self.profile == "box":
            first, shares = _box_shares(n, centres, distance)
        else:
            first, shares = _point_shares(n, centres)
        slices = _averaged(source.reshape(rows), first, shares)
        # Counted in slices; a voxel beyond the outermost slice lies on it.
        positions = (np.arange(n) - centres[0]) / distance
        positions = np.clip(positions, 0.0, len(centres) - 1.0)
        lower = np.floor(positions).astype(np.int64)
        weight = (positions - lower).astype(np.float32)
        interpolate(slices, destination.reshape(rows), lower, weight, True)

    kernels = (interpolate,)


def _slice_centres(n: int, distance: float) -> np.ndarray:
    """Return the slices' centres along an axis of n voxels, in voxels, symmetric about its middle.

    Args:
        distance: from one slice to the next, in voxels.
    """
    num_slices = max(1, math.floor(n / distance))
    # Centred: what the slices leave over is divided between both ends of the axis.
    origin = (n - 1) / 2.0 - (num_slices - 1) / 2.0 * distance
    centres: np.ndarray = origin + np.arange(num_slices) * distance
    return centres


def _point_shares(n: int, centres: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
    """Return the voxel that is nearest to each slice's centre, and its share, which is 1."""
    # Halves are rounded up; `np.rint` would round them to even numbers.
    nearest = np.clip(np.floor(centres + 0.5).astype(np.int64), 0, n - 1)
    return nearest, [np.ones(1, np.float32)] * len(centres)


def _box_shares(
    n: int, centres: np.ndarray, distance: float
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Return each slice's first voxel, and float32 shares of that one and those after it."""
    # Counted from the axis' first edge, which is half a voxel before voxel 0's centre: so voxel i
    # reaches from i to i + 1.
    starts = np.maximum(centres - distance / 2.0 + 0.5, 0.0)
    ends = np.minimum(centres + distance / 2.0 + 0.5, float(n))
    first = np.floor(starts).astype(np.int64)
    last = np.minimum(np.ceil(ends).astype(np.int64), n)
    shares = []
    for first_voxel, last_voxel, start, end in zip(first, last, starts, ends, strict=True):
        voxels = np.arange(first_voxel, last_voxel)
        overlaps = np.minimum(voxels + 1.0, end) - np.maximum(voxels, start)
        share = overlaps / (end - start)
        shares.append(share.astype(np.float32))
    return first, shares


def _averaged(rows: np.ndarray, first: np.ndarray, shares: Sequence[np.ndarray]) -> np.ndarray:
    """Return slices along the middle axis: voxels weighted by their shares, summed in order.

    Args:
        rows: (outer, n, inner), float32.
        first: each slice's first voxel.
        shares: of each slice's voxels, from its first one on.
    """
    slices = rows.take(first, axis=1)
    first_shares = np.array([slice_shares[0] for slice_shares in shares])
    slices *= first_shares[:, None]
    for index, slice_shares in enumerate(shares):
        # A loop instead of a product of matrices: BLAS would add in an order of its own.
        for offset in range(1, len(slice_shares)):
            voxels = rows[:, first[index] + offset]
            slices[:, index] += voxels * slice_shares[offset]
    return slices
