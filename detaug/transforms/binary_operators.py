"""Random dilation, erosion, closing and opening of one-hot channels (nnU-Net's cascade)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from detaug.kernels.masks import Footprint, dilated, packed, unpacked
from detaug.transforms.building import draws
from detaug.transforms.building.base import ImageTransform, Params, Shapes
from detaug.transforms.building.checks import as_list, channels, probability, random_scalar
from detaug.transforms.building.checks import one_of as one_of_texts
from detaug.transforms.building.draws import RandomScalar
from detaug.transforms.building.gate import channel_from_either_end, for_each, many, number, one_of, takes
from detaug.transforms.building.workspace import Workspace

LARGEST_RADIUS = 256.0  # voxels: footprints are made point by point
OPERATORS = ("dilation", "erosion", "closing", "opening")


class ApplyRandomBinaryOperator(ImageTransform):
    """Applies a random binary operator to each of some one-hot channels, in a random order. Voxels that a channel gains
    are taken from the others.

    Args:
        channel_idx: a channel of the image or several; -1 is the last one. Those that hold one-hot labels.
        any_of_these: what to choose from: ``dilation``, ``erosion``, ``closing``, ``opening``, or batchgeneratorsv2's
            functions of these.
        strel_size: the radius of the footprint in voxels, a ball or a disk as scikit-image makes it
            (`ball`, `disk`). Below 1 it is empty, but for 0, which is one voxel.
        p_per_label: the probability of each channel.

    Params: ``{"apply_to_channels": [channels], "operators": [one per channel], "strel_size": [one per channel]}``.

    A channel counts as set where it is not 0, and is 0 and 1 afterwards. Beyond the border nothing is set for a dilation,
    everything for an erosion. Closing and opening are made of both.

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
        self.any_of_these = [_operator(each) for each in any_of_these]
        if not self.any_of_these:
            raise ValueError("any_of_these must name at least one operator")
        self.strel_size = random_scalar("strel_size", strel_size, minimum=0, maximum=LARGEST_RADIUS)
        self.p_per_label = probability("p_per_label", p_per_label)

    def draw(self, rng: np.random.Generator, shapes: Shapes, context: Mapping[str, Any]) -> Params:
        channels("channel_idx", self.channel_idx, shapes["image"][0])
        applied = draws.channels_drawn(rng, draws.shuffled(rng, self.channel_idx), self.p_per_label)
        operators = [draws.choice(rng, self.any_of_these) for _ in applied]
        sizes = [draws.scalar(rng, self.strel_size, {**context, "channel": channel}) for channel in applied]
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
        for channel, operator, size in zip(applied, params["operators"], params["strel_size"], strict=True):
            before = image[channel] != 0
            after = apply_operator(operator, before, ball(size) if before.ndim == 3 else disk(size))
            for other in every - {channel}:
                image[other][after & ~before] = 0
            image[channel] = after


def _operator(wanted: Any) -> str:
    """A name, or what batchgeneratorsv2's function of that name does."""
    name = wanted
    if getattr(wanted, "__module__", "") == "batchgeneratorsv2.transforms.nnunet.random_binary_operator":
        name = wanted.__name__.removeprefix("binary_").removesuffix("_torch")
    return one_of_texts("any_of_these", name, OPERATORS)


def ball(radius: float) -> Footprint:
    """`skimage.morphology.ball`: ``int(2 radius + 1)`` points, evenly from -radius to radius along each axis, of which
    those within the radius belong to it. Between whole and half radii the points are farther than a voxel apart.
    """
    count = int(2 * radius + 1)
    step = (radius + radius) / (count - 1) if count > 1 else 1.0
    positions = [i * step + -radius for i in range(count)]
    return _round(positions, 3, radius * radius)


def disk(radius: float) -> Footprint:
    """`skimage.morphology.disk`: points one voxel apart, from -radius on, of which those within the radius belong to
    it.
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
            within = [k - center for k in range(count) if (squares[k] + squares[j]) + beyond <= limit]
            if within:
                rows.setdefault((within[0], within[-1]), []).append((i - center, j - center))
    return sorted(rows.items(), key=lambda row: row[0][1] - row[0][0])


def apply_operator(name: str, mask: np.ndarray, footprint: Footprint) -> np.ndarray:
    """A binary operator on a plane or volume of bools.

    Dilation sees nothing set outside, erosion everything, as the complement is dilated.
    """
    for step in {"closing": ("dilation", "erosion"), "opening": ("erosion", "dilation")}.get(name, (name,)):
        eroded = step == "erosion"
        bits = packed((mask ^ eroded).reshape((1,) * (3 - mask.ndim) + mask.shape))
        mask = unpacked(dilated(bits, footprint), mask.shape[-1]).reshape(mask.shape) ^ eroded
    return mask
