"""Cross-entropy, average pooling and linear up-sampling, with reproducible values and gradients.

The forward pass is PyTorch's.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.nn import functional
from torch.nn.modules import utils

from detaug.training.layers.linear_maps import HALF, Band, apply, precise

#: Modes of interpolation that are computed here → number of spatial axes.
LINEAR_MODES = {"linear": 1, "bilinear": 2, "trilinear": 3}


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
    """Compute `torch.nn.functional.cross_entropy` deterministically.

    For spatial targets, PyTorch's `nll_loss2d` adds atomically on CUDA where it reduces to a mean
    or a sum, and raises under `torch.use_deterministic_algorithms` (pytorch issue 17350). With
    ``reduction="none"`` it does neither: every voxel is read and written once. This is PyTorch's
    loss without reduction, and PyTorch's ordinary sum over the voxels.

    Args:
        input: logits ``(N, C, ...)`` or ``(C,)``, with any number of spatial axes.
        target: class numbers, ``(N, ...)`` or ``()``, int64 or uint8; or class probabilities of
            `input`'s shape. Probabilities, like ``reduction="none"``, go to PyTorch's own
            computation, which is deterministic for them.
        weight, ignore_index, reduction, label_smoothing: as PyTorch has them.
        size_average, reduce: PyTorch's deprecated ones; with them the loss is PyTorch's own, which
            is not deterministic.

    Raises:
        IndexError: a class number is outside ``0 … C - 1`` and is not `ignore_index` (on CUDA: a
            device assertion).
        RuntimeError, ValueError: what PyTorch raises for shapes, dtypes and reductions that it does
            not take.
    """
    is_reduced = reduction in ("mean", "sum") and size_average is None and reduce is None
    if not is_reduced or input.shape == target.shape:
        arguments = (size_average, ignore_index, reduce, reduction, label_smoothing)
        return functional.cross_entropy(input, target, weight, *arguments)
    if target.dtype == torch.uint8:
        # As uint8, ignore_index -100 would be class 156.
        target = target.long()
    # PyTorch computes the loss of each voxel; only the sum over voxels is replaced.
    losses = functional.cross_entropy(
        input, target, weight, None, ignore_index, None, "none", label_smoothing
    )
    if losses.dtype in HALF:
        # The half-precision sum of many voxels overflows.
        total = losses.sum(dtype=torch.float32)
    else:
        total = losses.sum()
    if reduction == "mean":
        # As in PyTorch, the mean is divided by the sum of the voxels' weights, not by their number.
        total = total / _sum_of_weights(target, weight, ignore_index, total.dtype)
    return total.to(losses.dtype)


def _sum_of_weights(
    target: torch.Tensor, weight: torch.Tensor | None, ignore_index: int, dtype: torch.dtype
) -> torch.Tensor:
    """Return the sum over all voxels of the weights of their classes."""
    # An ignored voxel may have any number: it is replaced before it is looked up, and counts 0.
    counts = target != ignore_index
    if weight is None:
        return counts.sum()
    weights = weight.detach().to(dtype)[target.where(counts, 0)]
    return weights.where(counts, 0).sum()


def avg_pool3d(
    input: torch.Tensor,  # noqa: A002
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> torch.Tensor:
    """Compute `torch.nn.functional.avg_pool3d` with a deterministic gradient.

    PyTorch's adds atomically on CUDA and raises under `torch.use_deterministic_algorithms`; that of
    AvgPool1d and AvgPool2d is reproducible.

    Args:
        input: ``(N, C, D, H, W)`` or ``(C, D, H, W)``; the other arguments are PyTorch's.
    """
    # PyTorch's: no stride, or an empty one, is the kernel's size.
    if stride is None or (isinstance(stride, (tuple, list)) and not stride):
        stride = kernel_size
    inputs = tuple(input.shape[-3:])
    kernel = _for_three_axes(kernel_size)
    steps = _for_three_axes(stride)
    # The forward pass is given the user's arguments, so that PyTorch's own checks see them.
    margins = _for_three_axes(padding)

    def forward(tensor: torch.Tensor) -> torch.Tensor:
        return functional.avg_pool3d(
            tensor, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
        )

    def band(axis: int, inputs: int, outputs: int, device: torch.device) -> Band:  # noqa: ARG001
        position = torch.arange(inputs, device=device)
        size = kernel[axis]
        step = steps[axis]
        margin = margins[axis]

        def divisor(start: torch.Tensor, end: torch.Tensor) -> torch.Tensor:
            """Return the number of voxels that a window's sum is divided by."""
            if divisor_override:
                # It is the divisor of the whole window, so one axis alone divides.
                return torch.tensor(divisor_override if axis == 0 else 1, device=device)
            if count_include_pad:
                count = end - start
            else:
                count = end.clamp(max=inputs) - start.clamp(min=0)
            # Outputs that do not exist count less than one voxel.
            return count.clamp(min=1)

        def weigh(output: torch.Tensor) -> torch.Tensor:
            start = output * step - margin
            end = (start + size).clamp(max=inputs + margin)
            is_inside = (start <= position) & (position < end)
            weight: torch.Tensor = is_inside.to(precise(device)) / divisor(start, end)
            return weight

        return Band(-((size - 1 - margin - position) // step), -(-size // step), weigh)

    return apply(forward, inputs, band, input)


def _for_three_axes(sizes: Any) -> list[int]:
    """Return a number, or one or three of them, as an integer for each of three axes.

    PyTorch also takes NumPy's integers and tensors of one, whose arithmetic wraps around or is
    that of arrays.
    """
    if not isinstance(sizes, (tuple, list)):
        return [int(sizes)] * 3
    return [int(size) for size in (*sizes, *sizes, *sizes)[:3]]


def interpolate(
    input: torch.Tensor,  # noqa: A002
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> torch.Tensor:
    """Compute `torch.nn.functional.interpolate`, in linear modes with a deterministic gradient.

    PyTorch's adds atomically on CUDA; newer releases replace some of them in deterministic mode by
    compositions of `index_put`, which sort. The other modes and antialiasing are PyTorch's: nearest
    and nearest-exact are reproducible.

    Args:
        input: ``(N, C, L)``, ``(N, C, H, W)`` or ``(N, C, D, H, W)``; the other arguments are
            PyTorch's.
    """
    num_axes = input.ndim - 2
    is_linear = num_axes == LINEAR_MODES.get(mode) and input.is_floating_point() and not antialias
    has_one_size = (size is None) != (scale_factor is None)
    if not is_linear or not has_one_size:
        # PyTorch's own errors come from here, too.
        arguments = (size, scale_factor, mode, align_corners, recompute_scale_factor, antialias)
        return functional.interpolate(input, *arguments)
    inputs = tuple(input.shape[2:])
    corners = bool(align_corners)
    for_all_axes: Any = utils._ntuple(num_axes)  # type: ignore[no-untyped-call]
    sizes: list[Any] | None = None
    scales: list[float] | None = None
    if size is not None:
        sizes = list(for_all_axes(size))
    else:
        scales = [float(scale) for scale in for_all_axes(scale_factor)]
    if scales and recompute_scale_factor:
        sizes = [math.floor(count * scale) for count, scale in zip(inputs, scales, strict=True)]
        scales = None

    # Not functional.interpolate: in deterministic mode, on CUDA, it calls a slow composition, and
    # rounds differently.
    kernel: Any = getattr(torch.ops.aten, f"upsample_{mode}{num_axes}d").vec

    def forward(tensor: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = kernel(tensor, sizes, corners, scales)
        return result

    def band(axis: int, inputs: int, outputs: int, device: torch.device) -> Band:
        scale = scales[axis] if scales else None
        return _linear_band(inputs, outputs, corners, scale, device)

    return apply(forward, inputs, band, input)


def _linear_band(
    inputs: int, outputs: int, corners: bool, scale: float | None, device: torch.device
) -> Band:
    """Return the band of linear interpolation along one axis.

    Output o looks at position ``ratio * o`` (aligned corners) or ``ratio * (o + 0.5) - 0.5``, and
    reaches one input to either side. The weights are 0 where they end: an output that rounding
    moves in or out adds nothing.
    """
    if inputs == outputs:
        # PyTorch then copies, whatever scale factor was asked for.
        scale = None
    shift = 0.5
    if corners:
        shift = 0.0
        ratio = (inputs - 1) / (outputs - 1) if outputs > 1 else 0.0
    elif scale:
        ratio = 1 / scale
    else:
        ratio = inputs / outputs
    index = torch.arange(inputs, device=device)
    number = index.to(precise(device))

    def weigh(output: torch.Tensor) -> torch.Tensor:
        position = (output.to(precise(device)) + shift) * ratio - shift
        distance = (position.clamp(0, inputs - 1) - number).abs()
        return (1 - distance).clamp(min=0)

    if ratio == 0:
        # Every output looks at the first input.
        return Band(torch.zeros_like(index), outputs, weigh)
    first = ((number - 1 + shift) / ratio - shift).floor().long() + 1
    return Band(first, math.ceil(2 / ratio), weigh)
