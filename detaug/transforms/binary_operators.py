"""Random dilation, erosion, closing and opening of one-hot channels (nnU-Net's cascade).

Footprints are balls and disks. Each of their rows along the last axis is a run of voxels, and of
two runs one contains the other. A volume is an array (n0, n1, words) of bits, 64 voxels in a word;
voxel 0 of a row is the lowest bit of its first word.

A dilation spreads the volume's rows along themselves, by the shortest run first, then by the next
longer ones. After each run, the spread rows are joined to the result at the offset of every row of
the footprint that is this run. So one operation covers 64 voxels and one row of the footprint.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.random import Generator

from detaug.transforms.building import draws
from detaug.transforms.building.base import Context, ImageTransform, Params, RandomScalar, Shapes
from detaug.transforms.building.checks import (
    argument,
    as_list,
    channels,
    probability,
    random_scalar,
)
from detaug.transforms.building.gate import (
    channel_from_either_end,
    for_each,
    many,
    number,
    one_of,
    takes,
)
from detaug.transforms.building.workspace import Workspace

#: Voxels; footprints are computed point by point.
LARGEST_RADIUS = 256.0
OPERATORS = ("dilation", "erosion", "closing", "opening")
#: The steps of an operator, if it has more than one.
_STEPS = {"closing": ("dilation", "erosion"), "opening": ("erosion", "dilation")}
#: Runs of voxels along the last axis, from the shortest to the longest: the run's first and last
#: offset, and the rows that are such a run, by their offsets along the first two axes. Each run
#: contains the one before it.
Footprint = list[tuple[tuple[int, int], list[tuple[int, int]]]]


class ApplyRandomBinaryOperator(ImageTransform):
    """A random binary operator for each of some one-hot channels, applied in a random order.

    Voxels that a channel gains are removed from the other channels.

    Args:
        channel_idx: one or several channels of the image that hold one-hot labels; -1 is the last.
        any_of_these: the operators to choose from: ``dilation``, ``erosion``, ``closing``,
            ``opening``, or batchgeneratorsv2's functions for these.
        strel_size: the radius of the footprint in voxels, a ball or a disk with the voxels that
            scikit-image gives it (`ball`, `disk`). Below 1 it is empty; at 0, it is one voxel.
        p_per_label: the probability of each channel.

    Params: ``{"apply_to_channels": [channels], "operators": [one per channel], "strel_size": [one
    per channel]}``.

    A voxel is set if it is not 0; afterwards the channel holds 0 and 1. Beyond the border, nothing
    is set for a dilation, and everything for an erosion. Closing and opening consist of both.

    Raises:
        IndexError: a channel that the image does not have.
    """

    def __init__(
        self,
        channel_idx: int | Sequence[int],
        any_of_these: Sequence[str | Callable[..., Any]] = OPERATORS,
        strel_size: RandomScalar = (1, 10),
        p_per_label: float = 1,
    ) -> None:
        self.channel_idx = as_list(channel_idx)
        names = [_operator_name(operator) for operator in any_of_these]
        self.any_of_these = argument("any_of_these", names, many(one_of(*OPERATORS), least=1))
        self.strel_size = random_scalar("strel_size", strel_size, minimum=0, maximum=LARGEST_RADIUS)
        self.p_per_label = probability("p_per_label", p_per_label)

    def draw(self, rng: Generator, shapes: Shapes, context: Context) -> Params:
        # Wrong channels raise before anything is drawn, so that `rng` stays where it was.
        channels("channel_idx", self.channel_idx, shapes["image"][0])
        applied = draws.channels_drawn(rng, draws.shuffled(rng, self.channel_idx), self.p_per_label)
        operators = [draws.choice(rng, self.any_of_these) for _ in applied]
        # All operators are drawn before the sizes: a seed's params depend on the order.
        sizes = []
        for channel in applied:
            sizes.append(draws.scalar(rng, self.strel_size, {**context, "channel": channel}))
        return {"apply_to_channels": applied, "operators": operators, "strel_size": sizes}

    @takes(
        apply_to_channels=many(channel_from_either_end),
        operators=for_each("apply_to_channels", one_of(*OPERATORS)),
        strel_size=for_each("apply_to_channels", number(0, LARGEST_RADIUS)),
    )
    def change(self, workspace: Workspace, params: Params) -> None:
        if len(params["apply_to_channels"]) == 0:
            return
        image = workspace.writable("image")
        all_channels = set(channels("channel_idx", self.channel_idx, len(image)))
        applied = channels("apply_to_channels", params["apply_to_channels"], len(image))
        drawn = zip(applied, params["operators"], params["strel_size"], strict=True)
        # One after another: a channel may lose voxels to the one before it.
        for channel, operator, radius in drawn:
            before = image[channel] != 0
            footprint = ball(radius) if before.ndim == 3 else disk(radius)
            after = apply_operator(operator, before, footprint)
            # A voxel has one label: the channel that gains it takes it from the others.
            gained = after & ~before
            for other in all_channels - {channel}:
                image[other][gained] = 0
            image[channel] = after


def _operator_name(operator: Any) -> Any:
    """Return the name for a function of batchgeneratorsv2; return anything else as it is."""
    # Compared by name, since batchgeneratorsv2 need not be installed.
    module = getattr(operator, "__module__", "")
    if module == "batchgeneratorsv2.transforms.nnunet.random_binary_operator":
        return operator.__name__.removeprefix("binary_").removesuffix("_torch")
    return operator


def ball(radius: float) -> Footprint:
    """Return the footprint of `skimage.morphology.ball`, the radius in voxels.

    It has ``int(2 radius + 1)`` points along each axis, evenly from -radius to radius; those within
    the radius belong to it. Between whole and half radii, points are more than a voxel apart.
    """
    count = int(2 * radius + 1)
    step = 1.0
    if count > 1:
        step = (radius + radius) / (count - 1)
    # Computed as `numpy.mgrid` does: the last bit decides about points at the radius.
    positions = [index * step + -radius for index in range(count)]
    return _round(positions, 3, radius * radius)


def disk(radius: float) -> Footprint:
    """Return the footprint of `skimage.morphology.disk`, the radius in voxels.

    Its points begin at -radius and are one voxel apart; those within the radius belong to it.
    """
    count = math.ceil(2 * radius + 1)
    # NumPy's arange adds the rounded difference of its first two values, which may not be 1.
    step = (-radius + 1) - -radius
    positions = [-radius + index * step for index in range(count)]
    return _round(positions, 2, radius * radius)


def _round(positions: list[float], dims: int, limit: float) -> Footprint:
    """Return the footprint of the points whose squared distance is at most the limit.

    Args:
        positions: of points along each axis, in voxels.
        dims: 2 or 3.
        limit: in voxels².
    """
    center = (len(positions) - 1) // 2
    offsets = [index - center for index in range(len(positions))]
    squares = [position * position for position in positions]
    points = list(zip(offsets, squares, strict=True))
    planes = points
    if dims == 2:
        planes = [(0, 0.0)]
    rows: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for d0, square0 in planes:
        for d1, square1 in points:
            # Summed in scikit-image's order: the last bit decides about points at the radius.
            run = [d2 for d2, square2 in points if (square2 + square1) + square0 <= limit]
            if run:
                rows.setdefault((run[0], run[-1]), []).append((d0, d1))
    return sorted(rows.items(), key=_run_length)


def _run_length(row: tuple[tuple[int, int], Any]) -> int:
    first, last = row[0]
    return last - first


def apply_operator(name: str, mask: np.ndarray, footprint: Footprint) -> np.ndarray:
    """Return a plane or volume of bools after a binary operator.

    A dilation sees nothing set outside, an erosion everything: it dilates the complement.
    """
    # The functions below know volumes only: a plane is a volume of one slice.
    shape_3d = (1,) * (3 - mask.ndim) + mask.shape
    for step in _STEPS.get(name, (name,)):
        is_erosion = step == "erosion"
        bits = _packed((mask ^ is_erosion).reshape(shape_3d))
        dilated = _unpacked(_dilated(bits, footprint), mask.shape[-1])
        mask = dilated.reshape(mask.shape) ^ is_erosion
    return mask


def _packed(mask: np.ndarray) -> np.ndarray:
    """Return bools (..., voxels) as uint64 (..., words)."""
    packed_bytes = np.packbits(mask, axis=-1, bitorder="little")
    num_words = math.ceil(mask.shape[-1] / 64)
    padded_bytes = np.zeros((*mask.shape[:-1], num_words * 8), np.uint8)
    padded_bytes[..., : packed_bytes.shape[-1]] = packed_bytes
    return padded_bytes.view(np.uint64)


def _unpacked(bits: np.ndarray, num_voxels: int) -> np.ndarray:
    """Return uint64 (..., words) as bools (..., num_voxels)."""
    unpacked = np.unpackbits(bits.view(np.uint8), axis=-1, count=num_voxels, bitorder="little")
    return unpacked.view(bool)


def _dilated(bits: np.ndarray, footprint: Footprint) -> np.ndarray:
    """Return the voxels whose footprint contains a voxel that is set in ``bits``.

    Bits beyond a row's end may be set as well.
    """
    n0, n1, _ = bits.shape
    spread = np.zeros_like(bits)
    result = np.zeros_like(bits)
    covered = range(0)
    for (first, last), rows in footprint:
        run = range(first, last + 1)
        # Runs come shortest first, and each contains the one before it, which is spread already.
        for offset in run:
            if offset not in covered:
                _add_shifted(bits, offset, spread)
        covered = run
        for d0, d1 in rows:
            target_0, source_0 = _overlap(d0, n0)
            target_1, source_1 = _overlap(d1, n1)
            result[target_0, target_1] |= spread[source_0, source_1]
    return result


def _overlap(offset: int, length: int) -> tuple[slice, slice]:
    """Return the indices i for which i + offset is one as well, and the indices i + offset."""
    target = slice(max(0, -offset), max(0, length - max(0, offset)))
    source = slice(max(0, offset), max(0, length + min(0, offset)))
    return target, source


def _add_shifted(bits: np.ndarray, offset: int, into: np.ndarray) -> None:
    """Set each voxel i of a row if voxel i + offset is set; outside the row nothing is set."""
    num_words, num_bits = divmod(abs(offset), 64)
    # Voxel 0 is the lowest bit: voxels further on move to lower bits.
    sign = 1
    shift: np.ufunc = np.right_shift
    shift_back: np.ufunc = np.left_shift
    if offset < 0:
        sign = -1
        shift = np.left_shift
        shift_back = np.right_shift
    target, source = _overlap(sign * num_words, bits.shape[-1])
    into[..., target] |= shift(bits[..., source], np.uint64(num_bits))
    # A word shifted by 64 bits is undefined; there is no carry then.
    if num_bits:
        target, source = _overlap(sign * (num_words + 1), bits.shape[-1])
        into[..., target] |= shift_back(bits[..., source], np.uint64(64 - num_bits))
