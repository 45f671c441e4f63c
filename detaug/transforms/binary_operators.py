"""Random dilation, erosion, closing and opening of one-hot channels (nnU-Net's cascade)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from detaug.kernels.bits import invert, pack, set_where, unpack, words_for
from detaug.kernels.morphology import dilate
from detaug.transforms.building import draws
from detaug.transforms.building.base import ImageTransform, Params, Shapes
from detaug.transforms.building.checks import as_list, channels, probability, random_scalar
from detaug.transforms.building.draws import RandomScalar
from detaug.transforms.building.gate import Given, channel_from_either_end, for_each, many, number, one_of, takes
from detaug.transforms.building.workspace import Workspace
from detaug.transforms.footprints import apply_operator, ball, disk

LARGEST_RADIUS = 256.0  # voxels: footprints are made point by point
OPERATORS = ("dilation", "erosion", "closing", "opening")
Operator = str | Callable[[torch.Tensor, torch.Tensor], Any]


def _check_operator(given: Given, value: Any) -> None:
    if not callable(value):
        one_of(*OPERATORS)(given, value)


class ApplyRandomBinaryOperator(ImageTransform):
    """Applies a random binary operator to each of some one-hot channels, in a random order. Voxels that a channel gains
    are taken from the others.

    Args:
        channel_idx: a channel of the image or several; -1 is the last one. Those that hold one-hot labels.
        any_of_these: what to choose from: ``dilation``, ``erosion``, ``closing``, ``opening`` (batchgeneratorsv2's
            functions are understood as these), or callables that take a boolean tensor of the channel and one of the
            footprint and give the channel's new one.
        strel_size: the radius of the footprint in voxels, a ball or a disk as scikit-image makes it
            (`detaug.transforms.footprints`). Below 1 it is empty, but for 0, which is one voxel.
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
        any_of_these: Sequence[Operator] = OPERATORS,
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
        operators=for_each("apply_to_channels", _check_operator),
        strel_size=for_each("apply_to_channels", number(0, LARGEST_RADIUS)),
    )
    def change(self, workspace: Workspace, params: Params) -> None:
        if len(params["apply_to_channels"]) == 0:
            return
        image = workspace.writable("image")
        every = set(channels("channel_idx", self.channel_idx, len(image)))
        applied = channels("apply_to_channels", params["apply_to_channels"], len(image))
        for channel, operator, size in zip(applied, params["operators"], params["strel_size"], strict=True):
            others = [image[other] for other in sorted(every - {channel})]
            _apply(image[channel], others, operator, size)

    kernels = (pack, unpack, set_where, invert, dilate)


def _apply(channel: np.ndarray, others: Sequence[np.ndarray], operator: Operator, size: float) -> None:
    voxels = channel.shape[-1]
    shape = (1,) * (3 - channel.ndim) + channel.shape
    before = np.empty((*shape[:2], words_for(voxels)), dtype=np.uint64)
    flat, rows = channel.reshape(-1), before.reshape(-1, before.shape[-1])
    binary = pack(flat, voxels, rows)
    footprint = ball(size) if channel.ndim == 3 else disk(size)
    if isinstance(operator, str):
        after = apply_operator(operator, before, voxels, footprint).reshape(rows.shape)
    else:
        result = operator(torch.from_numpy(channel != 0), torch.from_numpy(footprint.as_array()))
        after = np.empty_like(rows)
        pack(np.ascontiguousarray(result, dtype=np.float32).reshape(-1), voxels, after)
    gained = after & ~rows
    for other in others:
        set_where(gained, voxels, np.float32(0), other.reshape(-1))
    if binary:
        # most voxels are what they were
        set_where(gained, voxels, np.float32(1), flat)
        set_where(rows & ~after, voxels, np.float32(0), flat)
    else:
        unpack(after, voxels, flat)


def _operator(wanted: Any) -> Operator:
    """A name or a callable; batchgeneratorsv2's own functions by the name of what they do."""
    if isinstance(wanted, str):
        if wanted not in OPERATORS:
            raise ValueError(f"any_of_these must be {', '.join(OPERATORS)} or callables, got {wanted!r}")
        return wanted
    if not callable(wanted):
        raise TypeError(f"any_of_these must be {', '.join(OPERATORS)} or callables, got {wanted!r}")
    theirs = getattr(wanted, "__module__", "") == "batchgeneratorsv2.transforms.nnunet.random_binary_operator"
    name = str(getattr(wanted, "__name__", "")).removeprefix("binary_").removesuffix("_torch")
    operator: Operator = name if theirs and name in OPERATORS else wanted
    return operator
