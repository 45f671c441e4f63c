"""Images as if they had been taken at a lower resolution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from detaug.kernels.low_resolution import interpolate
from detaug.kernels.voxels import pick, picked
from detaug.transforms.building import checks, draws
from detaug.transforms.building.base import Context, Params, RandomScalar, Shapes
from detaug.transforms.building.gate import channels_with, each_axis, number, takes
from detaug.transforms.building.per_channel import ChannelTransform, as_volume, by_channel, per_axis
from detaug.transforms.building.workspace import Workspace
from detaug.transforms.labels import nearest

LARGEST_SCALE = 16.0  # beyond, an image would be sampled up, at a cost without end
Table = tuple[np.ndarray, np.ndarray, np.ndarray]

_ONE_VOXEL: Table = (np.zeros(1, np.int64), np.zeros(1, np.int64), np.zeros(1, np.float32))


class SimulateLowResolution(ChannelTransform):
    """Samples down to ``scale`` times the voxels per axis (nearest neighbour), then back up (linear
    interpolation).

    An axis of n voxels goes through ``round(n * scale)`` (Python's rounding, to even at a half),
    but at least one. Both ways voxels are taken as cells, not points (torch's "nearest-exact", and
    "linear" without aligned corners). Where a coarse voxel's centre falls between two voxels, the
    one that torch's float32 arithmetic finds is taken; interpolation weights are computed in
    float64.

    NaN and infinity spread over the coarse voxels that hold them and to those next to them.

    Args:
        scale: coarse voxels per voxel, > 0. A callable may ask for ``image``, ``channel`` (None
            where channels are synchronised) and ``dim`` (0, 1, 2, or None where axes are
            synchronised).
        synchronize_channels: the same scales for all channels.
        synchronize_axes: the same scale for all axes.
        ignore_axes: spatial axes that keep their resolution; None for none.
        allowed_channels: channels it may be applied to; None for all.
        p_per_channel: the probability of each of them.

    Params: ``{"apply_to_channel": [channels], "scales": [[one per axis] for each of them]}``.
    Scales are float32
    numbers, as batchgeneratorsv2 holds them: the coarse shape follows from them.
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
        self.ignore_axes = None if ignore_axes is None else checks.axes("ignore_axes", ignore_axes)
        self.allowed_channels = None if allowed_channels is None else tuple(allowed_channels)

    def draw(self, rng: np.random.Generator, shapes: Shapes, context: Context) -> Params:
        count, *shape = shapes["image"]
        wanted = range(count) if self.allowed_channels is None else self.allowed_channels
        allowed = checks.channels("allowed_channels", wanted, count)
        ignored = checks.axes("ignore_axes", self.ignore_axes or (), len(shape))

        def scales(channel: int | None) -> list[float]:
            known = {**context, "channel": channel}
            drawn = draws.for_axes(rng, self.scale, known, range(len(shape)), self.synchronize_axes)
            return [1.0 if d in ignored else _as_float32(scale) for d, scale in enumerate(drawn)]

        return self.draw_channels(rng, shapes, "scales", scales, allowed)

    @takes(**channels_with(scales=each_axis(number(above=0, most=LARGEST_SCALE))))
    def change(self, workspace: Workspace, params: Params) -> None:
        shape = workspace["image"].shape[1:]
        coarse = {c: coarse_shape(shape, scales) for c, scales in by_channel(params, "scales")}
        coarse = {
            c: found
            for c, found in coarse.items()
            if any(m != n for m, n in zip(found, shape, strict=True))
        }
        for c, before, after in workspace.chosen_channels(coarse, as_volume):
            tables = per_axis(
                [sampling_table(n, m) for n, m in zip(shape, coarse[c], strict=True)],
                shape,
                _ONE_VOXEL,
            )
            _down_and_up(before, after, tables)

    kernels = (pick, interpolate)


def coarse_shape(shape: Sequence[int], scales: Sequence[float]) -> list[int]:
    """Return how many voxels each axis has at the low resolution."""
    return [max(1, round(n * _as_float32(scale))) for n, scale in zip(shape, scales, strict=True)]


@lru_cache(maxsize=256)
def sampling_table(n: int, coarse: int) -> Table:
    """Return each coarse voxel's nearest one, each voxel's lower coarse one, and the next's weight.

    Every caller gets the same arrays, which must not be written to.
    """
    places = np.clip((np.arange(n) + 0.5) * coarse / n - 0.5, 0.0, coarse - 1.0)
    lower = np.floor(places).astype(np.int64)
    return nearest(n, coarse), lower, (places - lower).astype(np.float32)


def _down_and_up(source: np.ndarray, destination: np.ndarray, tables: Sequence[Table]) -> None:
    """Sample a volume (X, Y, Z) down, and back up along Z, Y and then X.

    Source and destination may be one array.
    """
    coarse = picked(source[None], [near for near, _, _ in tables])[0]
    for axis in (2, 1, 0):
        n = destination.shape[axis]
        shape = (*coarse.shape[:axis], n, *coarse.shape[axis + 1 :])
        size = math.prod(shape)
        # What was read is free, and new memory takes the system as long as an interpolation.
        free = axis != 1 and size <= destination.size
        finer = (destination.reshape(-1)[:size] if free else np.empty(size, np.float32)).reshape(
            shape
        )
        inner = math.prod(coarse.shape[axis + 1 :])
        flat = coarse.reshape(-1, coarse.shape[axis], inner), finer.reshape(-1, n, inner)
        interpolate(*flat, *tables[axis][1:], False)
        coarse = finer


def _as_float32(value: float) -> float:
    return float(np.float32(value))
