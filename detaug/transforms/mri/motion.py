"""Motion of the patient during an MRI scan."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.random import Generator

from detaug.kernels.coordinates import BORDER, layout
from detaug.kernels.resampling import resample_images
from detaug.transforms.building import checks, draws, gate
from detaug.transforms.building.affine import NO_DISPLACEMENT, applied, rotation
from detaug.transforms.building.base import Context, Params, RandomScalar, Shapes
from detaug.transforms.building.gate import InvalidParam, ParamContext, many
from detaug.transforms.building.per_channel import ChannelTransform, by_channel
from detaug.transforms.building.workspace import Workspace
from detaug.transforms.mri.k_space import extended, extended_length, filter_axis

# By how much of the time between two movements each of them may come early or late; TorchIO's.
_PERTURBATION = 0.3
_TEN_DEGREES = math.radians(10)


#: How many angles turn an image, by its number of spatial axes.
_NUM_ANGLES = {2: 1, 3: 3}


def _num_angles(context: ParamContext) -> int:
    return _NUM_ANGLES[context.dims()]


def _check_motion(context: ParamContext, value: Any) -> None:
    _MOTION(context, value)
    counts = {name: len(value[name]) for name in ("times", "rotations", "translations")}
    if len(set(counts.values())) > 1:
        raise InvalidParam(
            ValueError, f"must have as many times as rotations and translations, got {counts}"
        )
    if sorted(value["times"]) != list(value["times"]):
        raise InvalidParam(ValueError, f"must have times that rise, got {value['times']}")


_MOTION = gate.fields(
    axis=gate.axis,
    times=many(gate.number(0, 1)),
    rotations=many(many(gate.ANGLE, _num_angles)),
    translations=many(gate.each_axis(gate.PLACE)),
)


class Motion(ChannelTransform):
    """Rigid movements while k-space is filled plane by plane along an axis.

    Between two movements the scanner fills a stretch of k-space, from the lowest frequency to the
    highest, from the image as it lies then; the stretch around the middle is the image's own.
    Described by Shaw et al., "MRI k-space motion artefact augmentation", MIDL 2019
    (http://proceedings.mlr.press/v102/shaw19a.html). TorchIO's formula and defaults (`RandomMotion`
    1.2), but that the image is turned about its middle (there, about the origin of physical space),
    and that translations are in voxels and angles in radians.

    The image may be a patch of a larger field of view: what lies outside of it is its nearest voxel
    (there, the least value), and along the axis it is extended, mirrored. So the patch's border is
    no edge that moves, and gets no ghosts.

    Args:
        rotation: radians, drawn for each axis (in 2-D one angle) and each movement.
        translation: voxels, drawn for each axis and each movement.
        num_transforms: how many movements, >= 1.
        axes: the spatial axes to draw one from, along which k-space is filled; None: the last one,
            as in TorchIO.
        p_per_channel: the probability of each channel.
        synchronize_channels: the same movements in all channels; else each has its own.

    NaN and infinity spread along the axis.

    Params: ``{"apply_to_channel": [channels], "motions": [{"axis": a, "times": [one for each
    movement, 0 to 1, rising], "rotations": [angles for each movement], "translations": [voxels for
    each movement]} for each of them]}``. After a movement, the voxel at offset o from the image's
    middle shows what was at ``R o + translation``, where R is that of `SpatialTransform`.
    """

    def __init__(
        self,
        rotation: RandomScalar = (-_TEN_DEGREES, _TEN_DEGREES),
        translation: RandomScalar = (-10, 10),
        num_transforms: int = 2,
        axes: Sequence[int] | None = None,
        p_per_channel: float = 1.0,
        synchronize_channels: bool = True,
    ) -> None:
        super().__init__(p_per_channel, synchronize_channels)
        self.rotation = checks.radians("rotation", checks.random_scalar("rotation", rotation))
        self.translation = checks.random_scalar("translation", translation)
        self.num_transforms = checks.integer("num_transforms", num_transforms, 1)
        self.axes = checks.optional_axes("axes", axes)

    def draw(self, rng: Generator, shapes: Shapes, context: Context) -> Params:
        dims = len(shapes["image"]) - 1
        axes = [dims - 1]
        if self.axes is not None:
            axes = list(checks.axes("axes", self.axes, dims))

        def for_movements(scalar: RandomScalar, count: int) -> list[list[float]]:
            """Draw a list of ``count`` numbers for each movement."""
            lists = []
            for _ in range(self.num_transforms):
                lists.append([draws.scalar(rng, scalar, context) for _ in range(count)])
            return lists

        def motion(_: int | None) -> Params:
            return {
                "axis": draws.choice(rng, axes),
                "times": self._draw_times(rng),
                "rotations": for_movements(self.rotation, _NUM_ANGLES[dims]),
                "translations": for_movements(self.translation, dims),
            }

        return self.draw_channels(rng, shapes, "motions", motion)

    def _draw_times(self, rng: Generator) -> list[float]:
        """Draw when the movements happen, as parts of the scan: evenly, each early or late."""
        step = 1.0 / (self.num_transforms + 1)
        # Spread evenly, so that k-space has a stretch before and after each movement.
        times = []
        for number in range(1, self.num_transforms + 1):
            # The perturbation is less than half a step, so that movements keep their order.
            perturbation = draws.uniform(rng, -_PERTURBATION, _PERTURBATION)
            times.append(step * (number + perturbation))
        return times

    @gate.takes(**gate.channels_with(motions=_check_motion))
    def change(self, workspace: Workspace, params: Params) -> None:
        motions = {}
        for channel, motion in by_channel(params, "motions"):
            # Without a movement the image stays as it is, and need not be copied.
            if _moves(motion):
                motions[channel] = motion
        for motion, source, destination in workspace.chosen_channels(motions):
            _move(source, destination, motion)

    kernels = (resample_images,)


def _moves(motion: Params) -> bool:
    """Return whether one of the movements turns or shifts the image."""
    movements = (*motion["rotations"], *motion["translations"])
    return any(any(numbers) for numbers in movements)


def _move(source: np.ndarray, destination: np.ndarray, motion: Params) -> None:
    """Move one channel; both arrays may be one."""
    axis = motion["axis"]
    n = source.shape[axis]
    positions = []
    gains = []
    for position, stretch in enumerate(_stretches(extended_length(n), motion["times"])):
        # Between movements close to each other no plane is scanned: no image is needed there.
        if stretch.any():
            positions.append(position)
            gains.append(stretch)
    # A generator, so that images are made one at a time and added up in k-space.
    moved = filter_axis(_extended_images(source, positions, motion), axis, np.stack(gains))
    destination[...] = moved[(slice(None),) * axis + (slice(n),)]


def _extended_images(
    source: np.ndarray, positions: Sequence[int], motion: Params
) -> Iterator[np.ndarray]:
    """Yield the image as it lies in each position, 0 being its own, `extended` along the axis."""
    axis = motion["axis"]
    for position in positions:
        if position == 0:
            yield extended(source, axis)
            continue
        angles = motion["rotations"][position - 1]
        translation = motion["translations"][position - 1]
        # Without a name for the moved image, its memory is free when the extended one is used.
        yield extended(_resampled(source, angles, translation), axis)


def _stretches(n: int, times: Sequence[float]) -> list[np.ndarray]:
    """Return which planes of k-space each position of the image fills, as 1 and 0.

    Frequency 0 is in the middle. The image's own position, which is the first of the result, fills
    the stretch that holds the middle; the movement before that stretch fills the first one.

    Args:
        n: how many planes there are.
        times: of the movements, as parts of the scan, rising.
    """
    # Rounded to whole planes: a movement happens between two of them.
    starts = [0] + [int(n * time) for time in times]
    stops = [*starts[1:], n]
    middle = len([time for time in times if time <= 0.5])
    # Labels do not move: low frequencies come from the original position, so that they fit.
    order = list(range(len(starts)))
    order[0] = middle
    order[middle] = 0
    stretches = [np.zeros(n) for _ in order]
    for position, start, stop in zip(order, starts, stops, strict=True):
        stretches[position][start:stop] = 1.0
    return stretches


def _resampled(
    source: np.ndarray, angles: Sequence[float], translation: Sequence[float]
) -> np.ndarray:
    """Return the image turned about its middle and moved; outside of it is its nearest voxel."""
    # The kernel knows volumes only: a plane is a volume of one slice.
    num_missing = 3 - source.ndim
    space = (1,) * num_missing + source.shape
    turned = rotation(angles)
    matrix = np.eye(3)
    matrix[num_missing:, num_missing:] = turned
    middle = [(n - 1) / 2 for n in source.shape]
    turned_middle = applied(turned, middle)
    offset = np.zeros(3)
    for axis, (m, t, b) in enumerate(zip(middle, translation, turned_middle, strict=True)):
        offset[num_missing + axis] = m + t - b
    moved = np.empty((1, *space), np.float32)
    where = (layout(space, (0, 0, 0), space), matrix, offset, NO_DISPLACEMENT)
    is_flat = num_missing == 1
    resample_images(source.reshape(1, -1), moved, *where, BORDER, 0.0, is_flat)
    return moved.reshape(source.shape)
