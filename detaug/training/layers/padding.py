"""Reflection and replication padding whose gradients do not vary from run to run.

The forward pass is PyTorch's own. PyTorch's gradients add atomically on CUDA devices; under
`torch.use_deterministic_algorithms` that of reflection raises.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

from detaug.training.layers import linear_maps


def pad(
    input: torch.Tensor,  # noqa: A002
    pad: Sequence[int],
    mode: str = "constant",
    value: float | None = None,
) -> torch.Tensor:
    """As `torch.nn.functional.pad`; modes ``"reflect"`` and ``"replicate"`` have a deterministic gradient.

    The other modes (``"constant"``, ``"circular"``) are PyTorch's own: their gradients are copies.
    """
    if mode not in ("reflect", "replicate"):
        return functional.pad(input, pad, mode, value)
    return linear_maps.apply(_Padding(input.shape, tuple(pad), mode, value), input)


@dataclass(frozen=True)
class _Padding:
    """Padding as a linear map of a tensor of one shape; `amounts` is PyTorch's list, last axis first."""

    shape: torch.Size
    amounts: tuple[int, ...]
    mode: str
    value: float | None
    constants: tuple[torch.Tensor, ...] = ()

    def forward(self, tensor: torch.Tensor) -> torch.Tensor:
        # Not functional.pad: in deterministic mode it composes replication of index_put, for the sake of a gradient
        # that is not needed here.
        result: torch.Tensor = torch.ops.aten.pad(tensor, self.amounts, self.mode, self.value)
        return result

    def transposed(self, gradient: torch.Tensor) -> torch.Tensor:
        dtype = gradient.dtype
        # A copy, into which every axis' margins are folded; what remains is a view of its middle.
        result = gradient.float() if dtype in (torch.float16, torch.bfloat16) else gradient.clone()
        fold = _fold_reflection if self.mode == "reflect" else _fold_replication
        for number in range(len(self.amounts) // 2):
            before, after = self.amounts[2 * number : 2 * number + 2]
            result = fold(result, gradient.ndim - 1 - number, max(before, 0), max(after, 0))
        if min(self.amounts, default=0) < 0:  # these crop; their transpose fills with zeros
            result = functional.pad(result, [max(-amount, 0) for amount in self.amounts])
        return result.to(dtype).contiguous()


def _fold_reflection(gradient: torch.Tensor, axis: int, before: int, after: int) -> torch.Tensor:
    """The margins added to the middle, which is returned; what is given changes."""
    size = gradient.shape[axis] - before - after
    middle = gradient.narrow(axis, before, size)
    if before:
        middle.narrow(axis, 1, before).add_(gradient.narrow(axis, 0, before).flip(axis))
    if after:
        margin = gradient.narrow(axis, before + size, after).flip(axis)
        middle.narrow(axis, size - 1 - after, after).add_(margin)
    return middle


def _fold_replication(gradient: torch.Tensor, axis: int, before: int, after: int) -> torch.Tensor:
    """As `_fold_reflection`."""
    size = gradient.shape[axis] - before - after
    middle = gradient.narrow(axis, before, size)
    if before:
        middle.narrow(axis, 0, 1).add_(gradient.narrow(axis, 0, before).sum(axis, keepdim=True))
    if after:
        margin = gradient.narrow(axis, before + size, after).sum(axis, keepdim=True)
        middle.narrow(axis, size - 1, 1).add_(margin)
    return middle


def _forward(self: Any, input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    mode = "reflect" if isinstance(self, torch.nn.modules.padding._ReflectionPadNd) else "replicate"
    return pad(input, self.padding, mode)


class ReflectionPad1d(torch.nn.ReflectionPad1d):
    """`torch.nn.ReflectionPad1d` with a deterministic gradient."""

    forward = _forward


class ReflectionPad2d(torch.nn.ReflectionPad2d):
    """`torch.nn.ReflectionPad2d` with a deterministic gradient."""

    forward = _forward


class ReflectionPad3d(torch.nn.ReflectionPad3d):
    """`torch.nn.ReflectionPad3d` with a deterministic gradient."""

    forward = _forward


class ReplicationPad1d(torch.nn.ReplicationPad1d):
    """`torch.nn.ReplicationPad1d` with a deterministic gradient."""

    forward = _forward


class ReplicationPad2d(torch.nn.ReplicationPad2d):
    """`torch.nn.ReplicationPad2d` with a deterministic gradient."""

    forward = _forward


class ReplicationPad3d(torch.nn.ReplicationPad3d):
    """`torch.nn.ReplicationPad3d` with a deterministic gradient."""

    forward = _forward
