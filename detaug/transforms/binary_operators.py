"""Random dilation, erosion, closing and opening of one-hot channels (nnU-Net's cascade).

A dilation's footprint has rows along the last axis that are runs of voxels, each within the next
wider one: balls and disks. A volume is (n0, n1, words) of bits, 64 voxels in a word: voxel 0 of a
row is the lowest bit of its first word. The rows of the volume are dilated along themselves by one
run after another, from the narrowest, and after each they are joined to the result wherever the
footprint has such a row: one operation for 64 voxels and one row of the footprint.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

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

LARGEST_RADIUS = 256.0  # voxels: footprints are made point by point
OPERATORS = ("dilation", "erosion", "closing", "opening")
#: Runs of voxels along the last axis, from the shortest: its first and last offset, and the rows,
#: by their offsets along the first two axes, that are such runs. Each run holds the one before it.
Footprint = list[tuple[tuple[int, int], list[tuple[int, int]]]]


class ApplyRandomBinaryOperator(ImageTransform):
    """Applies a random binary operator to each of some one-hot channels, in a random order. Voxels
    that a channel gains are taken from the others.

    Args:
        channel_idx: a channel of the image or several; -1 is the last one. Those that hold one-hot
            labels.
        any_of_these: what to choose from: ``dilation``, ``erosion``, ``closing``, ``opening``, or
            batchgeneratorsv2's functions of these.
        strel_size: the radius of the footprint in voxels, a ball or a disk as scikit-image makes it
            (`ball`, `disk`). Below 1 it is empty, but for 0, which is one voxel.
        p_per_label: the probability of each channel.

    Params: ``{"apply_to_channels": [channels], "operators": [one per channel], "strel_size": [one
    per channel]}``.

    A channel counts as set where it is not 0, and is 0 and 1 afterwards. Beyond the border nothing
    is set for a dilation, everything for an erosion. Closing and opening are made of both.

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
        names = [_name(each) for each in any_of_these]
        self.any_of_these = argument("any_of_these", names, many(one_of(*OPERATORS), least=1))
        self.strel_size = random_scalar("strel_size", strel_size, minimum=0, maximum=LARGEST_RADIUS)
        self.p_per_label = probability("p_per_label", p_per_label)

    def draw(self, rng: np.random.Generator, shapes: Shapes, context: Context) -> Params:
        channels("channel_idx", self.channel_idx, shapes["image"][0])
        applied = draws.channels_drawn(rng, draws.shuffled(rng, self.channel_idx), self.p_per_label)
        operators = [draws.choice(rng, self.any_of_these) for _ in applied]
        sizes = [
            draws.scalar(rng, self.strel_size, {**context, "channel": channel})
            for channel in applied
        ]
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
        every = set(channels("channel_idx", self.channel_idx, len(image)))
        applied = channels("apply_to_channels", params["apply_to_channels"], len(image))
        for channel, operator, size in zip(
            applied, params["operators"], params["strel_size"], strict=True
        ):
            before = image[channel] != 0
            after = apply_operator(operator, before, ball(size) if before.ndim == 3 else disk(size))
            for other in every - {channel}:
                image[other][after & ~before] = 0
            image[channel] = after


def _name(wanted: Any) -> Any:
    """The name of what batchgeneratorsv2's function does; anything else as it is."""
    if (
        getattr(wanted, "__module__", "")
        == "batchgeneratorsv2.transforms.nnunet.random_binary_operator"
    ):
        return wanted.__name__.removeprefix("binary_").removesuffix("_torch")
    return wanted


def ball(radius: float) -> Footprint:
    """`skimage.morphology.ball`: ``int(2 radius + 1)`` points, evenly from -radius to radius along
    each axis, of which those within the radius belong to it. Between whole and half radii the
    points are farther than a voxel apart.
    """
    count = int(2 * radius + 1)
    step = (radius + radius) / (count - 1) if count > 1 else 1.0
    positions = [i * step + -radius for i in range(count)]
    return _round(positions, 3, radius * radius)


def disk(radius: float) -> Footprint:
    """`skimage.morphology.disk`: points one voxel apart, from -radius on, of which those within the
    radius belong to it.
    """
    count = math.ceil(2 * radius + 1) if radius else 1
    step = (-radius + 1) - -radius
    return _round([-radius + i * step for i in range(count)], 2, radius * radius)


def _round(positions: list[float], dims: int, limit: float) -> Footprint:
    count, center = len(positions), (len(positions) - 1) // 2
    squares = [position * position for position in positions]
    rows: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for i in range(count) if dims == 3 else (center,):
        for j in range(count):
            beyond = squares[i] if dims == 3 else 0.0
            within = [
                k - center for k in range(count) if (squares[k] + squares[j]) + beyond <= limit
            ]
            if within:
                rows.setdefault((within[0], within[-1]), []).append((i - center, j - center))
    return sorted(rows.items(), key=lambda row: row[0][1] - row[0][0])


def apply_operator(name: str, mask: np.ndarray, footprint: Footprint) -> np.ndarray:
    """A binary operator on a plane or volume of bools.

    Dilation sees nothing set outside, erosion everything, as the complement is dilated.
    """
    for step in {"closing": ("dilation", "erosion"), "opening": ("erosion", "dilation")}.get(
        name, (name,)
    ):
        eroded = step == "erosion"
        bits = _packed((mask ^ eroded).reshape((1,) * (3 - mask.ndim) + mask.shape))
        mask = _unpacked(_dilated(bits, footprint), mask.shape[-1]).reshape(mask.shape) ^ eroded
    return mask


def _packed(mask: np.ndarray) -> np.ndarray:
    """(..., voxels) bool as (..., words) uint64."""
    found = np.packbits(mask, axis=-1, bitorder="little")
    whole = np.zeros((*mask.shape[:-1], -(-mask.shape[-1] // 64) * 8), np.uint8)
    whole[..., : found.shape[-1]] = found
    return whole.view(np.uint64)


def _unpacked(bits: np.ndarray, voxels: int) -> np.ndarray:
    """The way back, for rows of that many voxels."""
    return np.unpackbits(bits.view(np.uint8), axis=-1, count=voxels, bitorder="little").view(bool)


def _dilated(bits: np.ndarray, footprint: Footprint) -> np.ndarray:
    """Every voxel for which the footprint, laid upon it, covers a voxel that is set in ``bits``.

    Bits beyond a row's end may be set as well.
    """
    n0, n1, _ = bits.shape
    spread, result = np.zeros_like(bits), np.zeros_like(bits)
    covered = range(0)
    for (first, last), rows in footprint:
        run = range(first, last + 1)
        for offset in run:
            if offset not in covered:
                _add_shifted(bits, offset, spread)
        covered = run
        for d0, d1 in rows:
            (i, from_i), (j, from_j) = _places(d0, n0), _places(d1, n1)
            result[i, j] |= spread[from_i, from_j]
    return result


def _places(offset: int, n: int) -> tuple[slice, slice]:
    """Of n places in a row those that have another one so far on, and these."""
    here = slice(max(0, -offset), max(0, n - max(0, offset)))
    return here, slice(max(0, offset), max(0, n + min(0, offset)))


def _add_shifted(bits: np.ndarray, offset: int, into: np.ndarray) -> None:
    """Set those voxels i of each row for which voxel i + offset is set, nothing being set outside
    the row.
    """
    skip, shift = divmod(abs(offset), 64)
    ahead, move, back = (
        (1, np.right_shift, np.left_shift) if offset >= 0 else (-1, np.left_shift, np.right_shift)
    )
    here, there = _places(ahead * skip, bits.shape[-1])
    into[..., here] |= move(bits[..., there], np.uint64(shift))
    if shift:
        here, there = _places(ahead * (skip + 1), bits.shape[-1])
        into[..., here] |= back(bits[..., there], np.uint64(64 - shift))
