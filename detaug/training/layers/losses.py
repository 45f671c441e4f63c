"""Cross-entropy and negative log-likelihood whose value and gradient do not vary from run to run.

With spatial targets, PyTorch's own (`nll_loss2d`, which every image of two or more dimensions ends in) adds
atomically on CUDA devices, in the forward pass already, and raises under `torch.use_deterministic_algorithms`
(pytorch issue 17350). Here every voxel reads the log-probability of its class, and sums are PyTorch's ordinary
reductions; the gradient is a comparison of every class with the target.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn import _reduction, functional

from detaug.training.layers import linear_maps

_HALF = (torch.float16, torch.bfloat16)


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
        target: class numbers, ``(N, ...)`` or ``()``, int64 or uint8; or class probabilities of `input`'s shape, for
            which PyTorch's own computation is deterministic and is called.
        weight, size_average, ignore_index, reduce, reduction, label_smoothing: as PyTorch has them.

    Raises:
        IndexError: a class number is outside ``0 … C - 1`` and is not `ignore_index` (on CUDA: a device assertion).
        RuntimeError, ValueError: what PyTorch raises for shapes, dtypes and reductions that it does not take.
    """
    if size_average is not None or reduce is not None:
        reduction = _reduction.legacy_get_string(size_average, reduce)
    if input.shape == target.shape or not (0.0 <= label_smoothing <= 1.0):
        return functional.cross_entropy(input, target, weight, None, ignore_index, None, reduction, label_smoothing)
    log_probability = functional.log_softmax(input, 0 if input.ndim == 1 else 1)
    loss = nll_loss(log_probability, target, weight, None, ignore_index, None, reduction)
    if label_smoothing == 0.0:
        return loss
    smooth = _uniform_loss(log_probability, target, weight, ignore_index, reduction)
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
    """As `torch.nn.functional.nll_loss`, deterministic; arguments and errors as those of `cross_entropy`, but `input`
    holds log-probabilities and `target` class numbers."""
    if size_average is not None or reduce is not None:
        reduction = _reduction.legacy_get_string(size_average, reduce)
    if not _takes(input, target, weight, reduction):
        # PyTorch knows best what it refuses, and says so.
        return functional.nll_loss(input, target, weight, None, ignore_index, None, reduction)
    if _in_autocast(input):
        input = input.float()  # noqa: A001  # as autocast does for PyTorch's own loss
    if input.ndim == 1:
        target = target.reshape(())
    ignored = target == ignore_index
    classes = torch.where(ignored, 0, target).long()
    picked = _Picking(classes, ignored, 0 if input.ndim == 1 else 1, input.shape, input.dtype)
    likelihood = linear_maps.apply(picked, input)
    if weight is not None:
        likelihood = likelihood * weight.detach()[classes]
    if reduction == "none":
        return 0 - likelihood
    total = 0 - _sum(likelihood)
    if reduction == "mean":
        total = total / _total_weight(classes, ignored, weight, total.dtype)
    return total.to(likelihood.dtype)


class CrossEntropyLoss(torch.nn.CrossEntropyLoss):
    """`torch.nn.CrossEntropyLoss`, deterministic: see `cross_entropy`."""

    def forward(self, input: torch.Tensor, target: torch.Tensor) -> torch.Tensor:  # noqa: A002
        return cross_entropy(
            input,
            target,
            weight=self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
        )


class NLLLoss(torch.nn.NLLLoss):
    """`torch.nn.NLLLoss`, deterministic: see `nll_loss`."""

    def forward(self, input: torch.Tensor, target: torch.Tensor) -> torch.Tensor:  # noqa: A002
        return nll_loss(input, target, weight=self.weight, ignore_index=self.ignore_index, reduction=self.reduction)


@dataclass(frozen=True, eq=False)
class _Picking:
    """Every voxel's log-probability of its own class; 0 where the voxel is ignored.

    Attributes:
        classes: ``(N, ...)`` or ``()``, a valid class number everywhere.
        ignored: the same shape.
        axis: the class axis of the log-probabilities.
        shape, dtype: of the log-probabilities.
    """

    classes: torch.Tensor
    ignored: torch.Tensor
    axis: int
    shape: torch.Size
    dtype: torch.dtype

    @property
    def constants(self) -> tuple[torch.Tensor, ...]:
        return self.classes, self.ignored

    def forward(self, tensor: torch.Tensor) -> torch.Tensor:
        try:
            picked = tensor.gather(self.axis, self.classes.unsqueeze(self.axis)).squeeze(self.axis)
        except RuntimeError as error:
            wrong = self.classes[(self.classes < 0) | (self.classes >= self.shape[self.axis])]
            if wrong.numel() == 0:
                raise
            raise IndexError(
                f"Target {int(wrong.flatten()[0])} is out of bounds: there are {self.shape[self.axis]} classes, "
                f"numbered from 0; mark voxels without a class with ignore_index"
            ) from error
        return picked.masked_fill_(self.ignored, 0)

    def transposed(self, gradient: torch.Tensor) -> torch.Tensor:
        value = gradient.masked_fill(self.ignored, 0).unsqueeze(self.axis)
        if gradient.is_cpu:
            result = gradient.new_zeros(self.shape).scatter_(self.axis, self.classes.unsqueeze(self.axis), value)
        else:
            result = self._by_comparison(value)
        return result.to(self.dtype)

    def _by_comparison(self, value: torch.Tensor) -> torch.Tensor:
        """Each voxel's value at its own class, 0 at the others. No voxel is written twice, so that scattering would
        give the same; but in deterministic mode PyTorch sorts what it scatters on a CUDA device."""
        number = torch.arange(self.shape[self.axis], device=value.device)
        number = number.view([-1] + [1] * (len(self.shape) - 1 - self.axis))
        own = number == self.classes.unsqueeze(self.axis)
        return torch.where(own, value, 0)


def _takes(log_probability: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None, reduction: str) -> bool:
    """Whether PyTorch's loss would take these arguments."""
    shape = log_probability.shape
    if len(shape) == 0 or target.dtype not in (torch.int64, torch.uint8) or target.device != log_probability.device:
        return False
    fits = target.numel() == 1 and target.ndim <= 1 if len(shape) == 1 else target.shape == shape[:1] + shape[2:]
    classes = shape[0 if len(shape) == 1 else 1]
    weighted = weight is None or (weight.shape == (classes,) and weight.dtype == log_probability.dtype)
    known = reduction in ("none", "mean", "sum")
    return fits and weighted and known and log_probability.is_floating_point() and classes > 0


def _total_weight(
    classes: torch.Tensor, ignored: torch.Tensor, weight: torch.Tensor | None, dtype: torch.dtype
) -> torch.Tensor:
    """What a mean divides by: the voxels that are not ignored, or their classes' weights."""
    if weight is None:
        return (ignored.numel() - torch.count_nonzero(ignored)).to(dtype)
    return weight.detach().to(dtype)[classes].masked_fill(ignored, 0).sum()


def _uniform_loss(
    log_probability: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None,
    ignore_index: int,
    reduction: str,
) -> torch.Tensor:
    """The loss towards all classes alike, the part that label smoothing mixes in."""
    axis = 0 if log_probability.ndim == 1 else 1
    ignored = target == ignore_index
    if weight is not None:
        log_probability = log_probability * weight.detach().view([-1] + [1] * (log_probability.ndim - 1 - axis))
    loss = -log_probability.sum(axis)
    loss = loss.masked_fill(ignored.view(loss.shape), 0)
    if reduction == "none":
        return loss
    total = _sum(loss)
    if reduction == "mean":
        classes = torch.where(ignored, 0, target).long()
        total = total / _total_weight(classes, ignored, weight, total.dtype)
    return total.to(loss.dtype)


def _sum(loss: torch.Tensor) -> torch.Tensor:
    """The sum, in float32 at least: a half-precision sum over many voxels overflows."""
    return loss.sum(dtype=torch.float32) if loss.dtype in _HALF else loss.sum()


def _in_autocast(tensor: torch.Tensor) -> bool:
    if tensor.dtype not in _HALF:
        return False
    try:
        return torch.is_autocast_enabled(tensor.device.type)
    except TypeError:  # torch 2.3 has one function for each kind of device
        return torch.is_autocast_cpu_enabled() if tensor.device.type == "cpu" else torch.is_autocast_enabled()
