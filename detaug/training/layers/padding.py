"""Reflection padding with a reproducible gradient.

The forward pass is PyTorch's. PyTorch's gradient adds atomically on CUDA and raises under
`torch.use_deterministic_algorithms`. Deterministic mode handles replication padding.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn import functional

from detaug.training.layers.linear_maps import HALF, apply


def pad(
    input: torch.Tensor,  # noqa: A002
    pad: Sequence[int],
    mode: str = "constant",
    value: float | None = None,
) -> torch.Tensor:
    """As `torch.nn.functional.pad`; mode ``"reflect"`` has a deterministic gradient, the others are PyTorch's own."""
    if mode != "reflect":
        return functional.pad(input, pad, mode, value)
    amounts = tuple(pad)  # last axis first; negative ones crop

    def transposed(gradient: torch.Tensor) -> torch.Tensor:
        # Every axis' margins are folded into a copy, and a view of its middle remains. Cropped voxels come back as zeros
        # first, because a reflection reaches across them.
        result = gradient.to(torch.float32 if gradient.dtype in HALF else gradient.dtype, copy=True)
        if min(amounts, default=0) < 0:
            result = functional.pad(result, [max(-amount, 0) for amount in amounts])
        for number in range(len(amounts) // 2):
            before, after = amounts[2 * number : 2 * number + 2]
            result = _fold(result, gradient.ndim - 1 - number, max(before, 0), max(after, 0))
        return result.to(gradient.dtype)

    return apply(lambda tensor: functional.pad(tensor, amounts, "reflect"), transposed, input)


def _fold(gradient: torch.Tensor, axis: int, before: int, after: int) -> torch.Tensor:
    """Add the margins to the middle, in place, and return a view of the middle."""
    size = gradient.shape[axis] - before - after
    middle = gradient.narrow(axis, before, size)
    if before:
        middle.narrow(axis, 1, before).add_(gradient.narrow(axis, 0, before).flip(axis))
    if after:
        middle.narrow(axis, size - 1 - after, after).add_(gradient.narrow(axis, before + size, after).flip(axis))
    return middle
