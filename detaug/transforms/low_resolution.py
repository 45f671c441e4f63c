"""Images as if they had been acquired at a lower resolution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.random import Generator

from detaug.kernels.low_resolution import interpolate
from detaug.kernels.voxels import pick, picked
from detaug.transforms.building import checks, draws
from detaug.transforms.building.base import Context, Params, RandomScalar, Shapes
from detaug.transforms.building.gate import channels_with, each_axis, number, takes
from detaug.transforms.building.per_channel import ChannelTransform, as_volume, by_channel, per_axis
from detaug.transforms.building.workspace import Workspace
from detaug.transforms.labels import nearest

#: A larger scale would enlarge the image, at any cost.
LARGEST_SCALE = 16.0
#: See `sampling_table`.
Table = tuple[np.ndarray, np.ndarray, np.ndarray]

_ONE_VOXEL: Table = (np.zeros(1, np.int64), np.zeros(1, np.int64), np.zeros(1, np.float32))


class SimulateLowResolution(ChannelTransform):
    """Images at ``scale`` times the voxels per axis, and interpolated back.

    Down by nearest neighbour, up linearly. An axis of n voxels becomes one of ``round(n * scale)``
    (Python's rounding, to even at a half), but at least one. Both ways, voxels are cells and not
    points (torch's "nearest-exact", and "linear" without aligned corners). If a coarse voxel's
    centre falls between two voxels, the one that torch's float32 arithmetic finds is used;
    interpolation weights are computed in float64.

    NaN and infinity spread over the coarse voxels that contain them and to their neighbours.

    Args:
        scale: coarse voxels per voxel, > 0. A callable may take ``image``, ``channel`` (None if
            channels are synchronised) and ``dim`` (0, 1, 2, or None if axes are synchronised).
        synchronize_channels: the same scales for all channels.
        synchronize_axes: the same scale for all axes.
        ignore_axes: spatial axes that keep their resolution. None: no axis.
        allowed_channels: channels that may be changed. None: all.
        p_per_channel: the probability of each of them.

    Params: ``{"apply_to_channel": [channels], "scales": [[one per axis] for each of them]}``.
    Scales are float32 numbers, as batchgeneratorsv2 holds them: the coarse shape follows from them.
    """

    def __init__(
        self,
        scale: RandomScalar,
        synchronize_channels: bool,
        synchronize_axes: bool,
        ignore_axes: Sequence[int] | None,
        allowed_channels: Sequence[int] | None = None,
        p_per_channel: float = 1,
    ) -> None:
        super().__init__(p_per_channel, synchronize_channels)
        self.scale = checks.random_scalar("scale", scale, above=0, maximum=LARGEST_SCALE)
        self.synchronize_axes = synchronize_axes
        self.ignore_axes = None
        if ignore_axes is not None:
            self.ignore_axes = checks.axes("ignore_axes", ignore_axes)
        self.allowed_channels = None
        if allowed_channels is not None:
            self.allowed_channels = tuple(allowed_channels)

    def draw(self, rng: Generator, shapes: Shapes, context: Context) -> Params:
        count, *shape = shapes["image"]
        allowed = list(range(count))
        if self.allowed_channels is not None:
            allowed = checks.channels("allowed_channels", self.allowed_channels, count)
        ignored = checks.axes("ignore_axes", self.ignore_axes or (), len(shape))

        def draw_scales(channel: int | None) -> list[float]:
            offered = {**context, "channel": channel}
            axes = range(len(shape))
            scales = draws.for_axes(rng, self.scale, offered, axes, self.synchronize_axes)
            for axis in ignored:
                # Drawn for ignored axes as well: later draws must not depend on them.
                scales[axis] = 1.0
            return [_as_float32(scale) for scale in scales]

        return self.draw_channels(rng, shapes, "scales", draw_scales, allowed)

    @takes(**channels_with(scales=each_axis(number(above=0, most=LARGEST_SCALE))))
    def change(self, workspace: Workspace, params: Params) -> None:
        shape = workspace["image"].shape[1:]
        coarse_shapes = {}
        for channel, scales in by_channel(params, "scales"):
            coarse = coarse_shape(shape, scales)
            # At full resolution, sampling down and up again changes nothing.
            if tuple(coarse) != tuple(shape):
                coarse_shapes[channel] = coarse
        for coarse, before, after in workspace.chosen_channels(coarse_shapes, as_volume):
            tables = list(map(sampling_table, shape, coarse))
            _down_and_up(before, after, per_axis(tables, shape, _ONE_VOXEL))

    kernels = (pick, interpolate)


def coarse_shape(shape: Sequence[int], scales: Sequence[float]) -> list[int]:
    """Return the number of voxels along each axis at the low resolution."""
    lengths = []
    for n, scale in zip(shape, scales, strict=True):
        lengths.append(max(1, round(n * _as_float32(scale))))
    return lengths


@lru_cache(maxsize=256)
def sampling_table(n: int, coarse: int) -> Table:
    """Return the tables by which an axis is sampled down and interpolated back.

    All callers get the same arrays, for reading only.

    Args:
        n: the axis' voxels.
        coarse: its voxels at the low resolution.

    Returns:
        For each coarse voxel its nearest voxel, (coarse,) int64; for each voxel the lower one of
        its two coarse voxels, (n,) int64, and the weight of the upper one, (n,) float32.
    """
    # Voxels are cells: the centre of voxel i lies i + 1/2 from the first edge of the axis.
    positions = (np.arange(n) + 0.5) * coarse / n - 0.5
    positions = np.clip(positions, 0.0, coarse - 1.0)
    lower = np.floor(positions).astype(np.int64)
    weights = (positions - lower).astype(np.float32)
    return nearest(n, coarse), lower, weights


def _down_and_up(source: np.ndarray, destination: np.ndarray, tables: Sequence[Table]) -> None:
    """Sample a volume down and interpolate it back, along Z, Y and then X.

    Args:
        source: (X, Y, Z) float32.
        destination: (X, Y, Z) float32; it may be the source.
        tables: a `sampling_table` for each axis.
    """
    nearest_rows = [rows for rows, _, _ in tables]
    (volume,) = picked(source[None], nearest_rows)
    for axis in (2, 1, 0):
        shape = list(volume.shape)
        shape[axis] = destination.shape[axis]
        size = math.prod(shape)
        # The destination serves as memory, since its old values are not needed any more: new memory
        # costs as much time as an interpolation. Along Y the input itself is in it.
        if axis != 1 and size <= destination.size:
            finer = destination.reshape(-1)[:size]
        else:
            finer = np.empty(size, np.float32)
        # The kernel interpolates along the middle one of three axes.
        inner = math.prod(shape[axis + 1 :])
        flat_source = volume.reshape(-1, volume.shape[axis], inner)
        flat_destination = finer.reshape(-1, shape[axis], inner)
        _, lower, weights = tables[axis]
        interpolate(flat_source, flat_destination, lower, weights, False)
        volume = finer.reshape(shape)


def _as_float32(value: float) -> float:
    return float(np.float32(value))
