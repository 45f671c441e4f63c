"""Cross-entropy and negative log-likelihood with reproducible values and gradients.

For spatial targets, PyTorch's `nll_loss2d` adds atomically on CUDA, in the forward pass already, and raises under
`torch.use_deterministic_algorithms` (pytorch issue 17350). Here every voxel reads the log-probability of its class, sums
are PyTorch's ordinary reductions, and the gradient is a comparison of every class with the target.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn import _reduction, functional

from detaug.training.layers.linear_maps import HALF, apply


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
        weight, size_average, ignore_index, reduce, reduction, label_smoothing: as PyTorch has them.

    Raises:
        IndexError: a class number is outside ``0 … C - 1`` and is not `ignore_index` (on CUDA: a device assertion).
        RuntimeError, ValueError: what PyTorch raises for shapes, dtypes and reductions that it does not take.
    """
    if size_average is not None or reduce is not None:
        reduction = _reduction.legacy_get_string(size_average, reduce)
    probabilities = input.shape == target.shape
    if probabilities or reduction == "none" or not (0.0 <= label_smoothing <= 1.0):
        return functional.cross_entropy(input, target, weight, None, ignore_index, None, reduction, label_smoothing)
    input, weight = _as_autocast_has_them(input, weight)  # noqa: A001
    log_probability = functional.log_softmax(input, 0 if input.ndim == 1 else 1)
    loss = nll_loss(log_probability, target, weight, None, ignore_index, None, reduction)
    if label_smoothing == 0.0:
        return loss
    smooth = _uniform_loss(log_probability, target.long(), weight, ignore_index, reduction)
    classes = input.shape[0 if input.ndim == 1 else 1]
    return (1 - label_smoothing) * loss + smooth * (label_smoothing / classes)


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
    if size_average is not None or reduce is not None:
        reduction = _reduction.legacy_get_string(size_average, reduce)
    if not _takes(input, target, weight, reduction):
        # for PyTorch's own errors
        return functional.nll_loss(input, target, weight, None, ignore_index, None, reduction)
    input, weight = _as_autocast_has_them(input, weight)  # noqa: A001
    target = target.long()  # as uint8, ignore_index -100 would be class 156
    if input.ndim == 1:
        target = target.reshape(())
    axis = 0 if input.ndim == 1 else 1
    ignored = target == ignore_index
    classes = torch.where(ignored, 0, target)
    picked = _Picking(axis, input.shape[axis])
    try:
        likelihood = apply(picked, input, classes, ignored)
    except RuntimeError as error:
        wrong = classes[(classes < 0) | (classes >= input.shape[axis])]
        if wrong.numel() == 0:
            raise
        raise IndexError(
            f"Target {int(wrong.flatten()[0])} is out of bounds: there are {input.shape[axis]} classes, numbered from "
            f"0; mark voxels without a class with ignore_index"
        ) from error
    if weight is not None:
        likelihood = likelihood * weight.detach()[classes]
    total = 0 - _sum(likelihood)
    if reduction == "mean":
        total = total / _total_weight(classes, ignored, weight, total.dtype)
    return total.to(likelihood.dtype)


class CrossEntropyLoss(torch.nn.CrossEntropyLoss):
    """`torch.nn.CrossEntropyLoss`, deterministic: see `cross_entropy`."""

    def forward(self, input: torch.Tensor, target: torch.Tensor) -> torch.Tensor:  # noqa: A002
        how = (self.weight, None, self.ignore_index, None, self.reduction, self.label_smoothing)
        return cross_entropy(input, target, *how)


class NLLLoss(torch.nn.NLLLoss):
    """`torch.nn.NLLLoss`, deterministic: see `nll_loss`."""

    def forward(self, input: torch.Tensor, target: torch.Tensor) -> torch.Tensor:  # noqa: A002
        return nll_loss(input, target, self.weight, None, self.ignore_index, None, self.reduction)


@dataclass(frozen=True)
class _Picking:
    """Every voxel's log-probability of its own class; 0 where the voxel is ignored.

    Of the constants, `target` ``(N, ...)`` or ``()`` is a valid class number everywhere, `ignored` has the same shape.

    Attributes:
        axis: the class axis of the log-probabilities.
        classes: how many there are.
    """

    axis: int
    classes: int

    def forward(self, tensor: torch.Tensor, target: torch.Tensor, ignored: torch.Tensor) -> torch.Tensor:
        return tensor.gather(self.axis, target.unsqueeze(self.axis)).squeeze(self.axis).masked_fill(ignored, 0)

    def transposed(self, gradient: torch.Tensor, target: torch.Tensor, ignored: torch.Tensor) -> torch.Tensor:
        """Each voxel's value at its own class, 0 at the others. Scattering gives the same, since no voxel is written
        twice; but on CUDA, deterministic mode sorts what it scatters."""
        value = gradient.masked_fill(ignored, 0).unsqueeze(self.axis)
        if gradient.is_cpu:
            shape = (*value.shape[: self.axis], self.classes, *value.shape[self.axis + 1 :])
            return torch.zeros(shape, dtype=value.dtype).scatter(self.axis, target.unsqueeze(self.axis), value)
        return _one_hot(value, target, self.axis, self.classes)


def _one_hot(value: torch.Tensor, target: torch.Tensor, axis: int, classes: int) -> torch.Tensor:
    number = torch.arange(classes, device=value.device).view([-1] + [1] * (value.ndim - 1 - axis))
    return torch.where(number == target.unsqueeze(axis), value, 0)


def _takes(log_probability: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None, reduction: str) -> bool:
    """Whether PyTorch's loss would take these arguments."""
    shape = log_probability.shape
    if len(shape) == 0 or target.dtype not in (torch.int64, torch.uint8) or target.device != log_probability.device:
        return False
    fits = target.numel() == 1 and target.ndim <= 1 if len(shape) == 1 else target.shape == shape[:1] + shape[2:]
    classes = shape[0 if len(shape) == 1 else 1]
    weighted = weight is None or (weight.shape == (classes,) and weight.dtype == log_probability.dtype)
    known = reduction in ("mean", "sum")
    return fits and weighted and known and log_probability.is_floating_point() and classes > 0


def _total_weight(
    classes: torch.Tensor, ignored: torch.Tensor, weight: torch.Tensor | None, dtype: torch.dtype
) -> torch.Tensor:
    """What a mean divides by: the voxels that are not ignored, or their classes' weights."""
    if weight is None:
        return (ignored.numel() - torch.count_nonzero(ignored)).to(dtype)
    return weight.detach().to(dtype)[classes].masked_fill(ignored, 0).sum()


def _uniform_loss(
    log_probability: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None, ignore_index: int, reduction: str
) -> torch.Tensor:
    """The loss towards all classes alike, the part that label smoothing mixes in."""
    axis = 0 if log_probability.ndim == 1 else 1
    ignored = target == ignore_index
    if weight is not None:
        log_probability = log_probability * weight.detach().view([-1] + [1] * (log_probability.ndim - 1 - axis))
    loss = -log_probability.sum(axis)
    total = _sum(loss.masked_fill(ignored.view(loss.shape), 0))
    if reduction == "mean":
        classes = torch.where(ignored, 0, target).long()
        total = total / _total_weight(classes, ignored, weight, total.dtype)
    return total.to(loss.dtype)


def _sum(loss: torch.Tensor) -> torch.Tensor:
    """The sum, in float32 at least: a half-precision sum over many voxels overflows."""
    return loss.sum(dtype=torch.float32) if loss.dtype in HALF else loss.sum()


def _as_autocast_has_them(
    logits: torch.Tensor, weight: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """In float32 where autocast is on, as it computes PyTorch's own losses."""
    kind = logits.device.type
    try:
        on = torch.is_autocast_enabled(kind)
    except TypeError:  # torch 2.3 has one function for each kind of device
        on = torch.is_autocast_cpu_enabled() if kind == "cpu" else torch.is_autocast_enabled()
    if not on or logits.dtype not in HALF:
        return logits, weight
    return logits.float(), None if weight is None else weight.float()
