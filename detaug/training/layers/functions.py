"""Cross-entropy, average pooling and linear up-sampling: PyTorch's forward pass, with reproducible
values and gradients.
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
    """As `torch.nn.functional.cross_entropy`, deterministic.

    For spatial targets, PyTorch's `nll_loss2d` adds atomically on CUDA where it reduces to a mean
    or a sum, and raises under `torch.use_deterministic_algorithms` (pytorch issue 17350). With
    ``reduction="none"`` it does neither: every voxel is read and written once. This is PyTorch's
    loss without reduction, and PyTorch's ordinary sum over the voxels.

    Args:
        input: logits ``(N, C, ...)`` or ``(C,)``, with any number of spatial axes.
        target: class numbers, ``(N, ...)`` or ``()``, int64 or uint8; or class probabilities of
            `input`'s shape, which
            PyTorch's own, deterministic computation takes, as it does ``reduction="none"``.
        weight, ignore_index, reduction, label_smoothing: as PyTorch has them.
        size_average, reduce: PyTorch's deprecated ones; with them the loss is PyTorch's own, which
            is not deterministic.

    Raises:
        IndexError: a class number is outside ``0 … C - 1`` and is not `ignore_index` (on CUDA: a
            device assertion).
        RuntimeError, ValueError: what PyTorch raises for shapes, dtypes and reductions that it does
            not take.
    """
    if (
        reduction not in ("mean", "sum")
        or not size_average is reduce is None
        or input.shape == target.shape
    ):
        arguments = (size_average, ignore_index, reduce, reduction, label_smoothing)
        return functional.cross_entropy(input, target, weight, *arguments)
    if target.dtype == torch.uint8:
        target = target.long()  # as uint8, ignore_index -100 would be class 156
    each = functional.cross_entropy(
        input, target, weight, None, ignore_index, None, "none", label_smoothing
    )
    # In float32 at least: a half-precision sum of many overflows.
    total = each.sum(dtype=torch.float32) if each.dtype in HALF else each.sum()
    if reduction == "mean":
        taken = target != ignore_index
        weights = (
            taken
            if weight is None
            else weight.detach().to(total.dtype)[target.where(taken, 0)].where(taken, 0)
        )
        total = total / weights.sum()
    return total.to(each.dtype)


def avg_pool3d(
    input: torch.Tensor,  # noqa: A002
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> torch.Tensor:
    """As `torch.nn.functional.avg_pool3d`, for ``(N, C, D, H, W)`` or ``(C, D, H, W)``, with a
    deterministic gradient.

    PyTorch's adds atomically on CUDA and raises under `torch.use_deterministic_algorithms`; that of
    AvgPool1d and AvgPool2d is reproducible.
    """
    has_stride = stride is not None and not (isinstance(stride, (tuple, list)) and not stride)
    sizes = (kernel_size, stride if has_stride else kernel_size, padding)
    arguments = (*sizes, ceil_mode, count_include_pad, divisor_override)
    inputs = tuple(input.shape[-3:])
    kernel, steps, padded = map(_for_three_axes, sizes)

    def band(axis: int, inputs: int, outputs: int, device: torch.device) -> Band:  # noqa: ARG001
        place = torch.arange(inputs, device=device)
        size = kernel[axis]
        step = steps[axis]
        margin = padded[axis]

        def weigh(output: torch.Tensor) -> torch.Tensor:
            start = output * step - margin
            end = (start + size).clamp(max=inputs + margin)
            counted = (
                (end - start) if count_include_pad else end.clamp(max=inputs) - start.clamp(min=0)
            )
            counted = counted.clamp(min=1)  # of outputs that do not exist
            if divisor_override:
                counted = torch.tensor(divisor_override if axis == 0 else 1, device=device)
            weight: torch.Tensor = ((start <= place) & (place < end)).to(precise(device)) / counted
            return weight

        return Band(-((size - 1 - margin - place) // step), -(-size // step), weigh)

    return apply(lambda tensor: functional.avg_pool3d(tensor, *arguments), inputs, band, input)


def _for_three_axes(sizes: Any) -> list[int]:
    """Return a number, or one or three of them, as an integer for each of three axes.

    PyTorch also takes NumPy's integers and tensors of one, whose arithmetic wraps around or is
    that of arrays.
    """
    numbers = sizes if isinstance(sizes, (tuple, list)) else (sizes,)
    return [int(number) for number in (*numbers, *numbers, *numbers)[:3]]


def interpolate(
    input: torch.Tensor,  # noqa: A002
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> torch.Tensor:
    """As `torch.nn.functional.interpolate`; the modes linear, bilinear and trilinear have a
    deterministic gradient.

    PyTorch's adds atomically on CUDA; newer releases replace some of them in deterministic mode by
    compositions of `index_put`, which sort. The other modes and antialiasing are PyTorch's: nearest
    and nearest-exact are reproducible.

    Args:
        input: ``(N, C, L)``, ``(N, C, H, W)`` or ``(N, C, D, H, W)``; the other arguments are
            PyTorch's.
    """
    axes, one_given = input.ndim - 2, (size is None) != (scale_factor is None)
    if (
        axes != LINEAR_MODES.get(mode)
        or not one_given
        or antialias
        or not input.is_floating_point()
    ):
        arguments = (size, scale_factor, mode, align_corners, recompute_scale_factor, antialias)
        return functional.interpolate(input, *arguments)  # its errors too
    inputs, corners = tuple(input.shape[2:]), bool(align_corners)
    each_axis: Any = utils._ntuple(axes)  # type: ignore[no-untyped-call]
    sizes = None if size is None else list(each_axis(size))
    scales = None if scale_factor is None else [float(each) for each in each_axis(scale_factor)]
    if scales and recompute_scale_factor:
        sizes, scales = (
            [math.floor(each * scale) for each, scale in zip(inputs, scales, strict=True)],
            None,
        )

    # Not functional.interpolate: in deterministic mode, on CUDA, it calls a slow composition, and
    # rounds differently.
    kernel: Any = getattr(torch.ops.aten, f"upsample_{mode}{axes}d").vec

    def band(axis: int, inputs: int, outputs: int, device: torch.device) -> Band:
        return _linear_band(inputs, outputs, corners, scales[axis] if scales else None, device)

    return apply(lambda tensor: kernel(tensor, sizes, corners, scales), inputs, band, input)


def _linear_band(
    inputs: int, outputs: int, corners: bool, scale: float | None, device: torch.device
) -> Band:
    """Output o looks at position ``ratio * o`` (aligned corners) or ``ratio * (o + 0.5) - 0.5``,
    and reaches one input to either side. The weights are 0 where they end: an output that rounding
    moves in or out adds nothing.
    """
    if inputs == outputs:
        scale = None  # PyTorch then copies, whatever scale factor was asked for
    if corners:
        ratio, shift = ((inputs - 1) / (outputs - 1) if outputs > 1 else 0.0), 0.0
    else:
        ratio, shift = (1 / scale if scale else inputs / outputs), 0.5
    place = torch.arange(inputs, device=device)
    number = place.to(precise(device))

    def weigh(output: torch.Tensor) -> torch.Tensor:
        position = (output.to(precise(device)) + shift) * ratio - shift
        return (1 - (position.clamp(0, inputs - 1) - number).abs()).clamp(min=0)

    if ratio == 0:  # every output looks at the first input
        return Band(torch.zeros_like(place), outputs, weigh)
    first = ((number - 1 + shift) / ratio - shift).floor().long() + 1
    return Band(first, math.ceil(2 / ratio), weigh)
