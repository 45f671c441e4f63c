"""Cross-entropy and negative log-likelihood with reproducible values and gradients.

For spatial targets, PyTorch's `nll_loss2d` adds atomically on CUDA where it reduces to a mean or a sum, and raises under
`torch.use_deterministic_algorithms` (pytorch issue 17350). With ``reduction="none"`` it does neither: every voxel is read and
written once. These losses are PyTorch's without reduction, and PyTorch's ordinary sum over the voxels.
"""

from __future__ import annotations

import torch
from torch.nn import functional

from detaug.training.layers.linear_maps import HALF


def cross_entropy(
    input: torch.Tensor,  # noqa: A002
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> torch.Tensor:
    """As `torch.nn.functional.cross_entropy`, deterministic.

    Args:
        input: logits ``(N, C, ...)`` or ``(C,)``, with any number of spatial axes.
        target: class numbers, ``(N, ...)`` or ``()``, int64 or uint8; or class probabilities of `input`'s shape, which
            PyTorch's own, deterministic computation takes, as it does ``reduction="none"``.
        weight, ignore_index, reduction, label_smoothing: as PyTorch has them.
        size_average, reduce: PyTorch's deprecated ones; with them the loss is PyTorch's own, which is not deterministic.

    Raises:
        IndexError: a class number is outside ``0 … C - 1`` and is not `ignore_index` (on CUDA: a device assertion).
        RuntimeError, ValueError: what PyTorch raises for shapes, dtypes and reductions that it does not take.
    """
    if reduction not in ("mean", "sum") or not size_average is reduce is None or input.shape == target.shape:
        arguments = (size_average, ignore_index, reduce, reduction, label_smoothing)
        return functional.cross_entropy(input, target, weight, *arguments)
    target = _in_int64(target)
    each = functional.cross_entropy(input, target, weight, None, ignore_index, None, "none", label_smoothing)
    return _reduced(each, target, weight, ignore_index, reduction)


def nll_loss(
    input: torch.Tensor,  # noqa: A002
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> torch.Tensor:
    """As `torch.nn.functional.nll_loss`, deterministic. Arguments and errors are those of `cross_entropy`, but `input`
    holds log-probabilities and `target` class numbers."""
    if reduction not in ("mean", "sum") or not size_average is reduce is None:
        return functional.nll_loss(input, target, weight, size_average, ignore_index, reduce, reduction)
    target = _in_int64(target)
    each = functional.nll_loss(input, target, weight, None, ignore_index, None, "none")
    return _reduced(each, target, weight, ignore_index, reduction)


def _in_int64(target: torch.Tensor) -> torch.Tensor:
    """As uint8, ignore_index -100 would be class 156."""
    return target.long() if target.dtype == torch.uint8 else target


def _reduced(
    each: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None, ignore_index: int, reduction: str
) -> torch.Tensor:
    """The sum of every voxel's loss, or its weighted mean; in float32 at least: a half-precision sum of many overflows."""
    total = each.sum(dtype=torch.float32) if each.dtype in HALF else each.sum()
    if reduction == "mean":
        taken = target != ignore_index
        weights = taken if weight is None else weight.detach().to(total.dtype)[target.where(taken, 0)].where(taken, 0)
        total = total / weights.sum()
    return total.to(each.dtype)
