"""Linear and cubic interpolation with reproducible gradients.

The forward pass is PyTorch's. PyTorch's gradients of linear, bilinear, bicubic, trilinear and area interpolation add
atomically on CUDA; newer releases replace some of them in deterministic mode by compositions of `index_put`, which sort.
These do neither. The modes nearest and nearest-exact, which are reproducible, and antialiasing are PyTorch's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch.nn import functional

from detaug.training.layers import pooling
from detaug.training.layers.linear_maps import Band, apply, precise, transposed_along_axes

#: Modes that are computed here → number of spatial axes.
AXES = {"linear": 1, "bilinear": 2, "bicubic": 2, "trilinear": 3}

#: Of the cubic kernel: PyTorch's value (Keys, 1981, has -0.5; OpenCV -0.75 as well).
_A = -0.75


def interpolate(
    input: torch.Tensor,  # noqa: A002
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> torch.Tensor:
    """As `torch.nn.functional.interpolate`; linear, bilinear, bicubic, trilinear and area have a deterministic gradient.

    Args:
        input: ``(N, C, L)``, ``(N, C, H, W)`` or ``(N, C, D, H, W)``; the other arguments are PyTorch's.
    """
    known = input.ndim - 2 == AXES.get(mode) or (mode == "area" and input.ndim in (3, 4, 5))
    one_given = (size is None) != (scale_factor is None)
    if not known or not one_given or antialias or not input.is_floating_point():
        arguments = (size, scale_factor, mode, align_corners, recompute_scale_factor, antialias)
        return functional.interpolate(input, *arguments)  # its errors too
    if mode == "area":
        pool = (pooling.adaptive_avg_pool1d, pooling.adaptive_avg_pool2d, pooling.adaptive_avg_pool3d)[input.ndim - 3]
        return pool(input, size if size is not None else _scaled(input, scale_factor))
    if recompute_scale_factor and scale_factor is not None:
        size, scale_factor = _scaled(input, scale_factor), None
    axes, corners = input.ndim - 2, bool(align_corners)
    inputs = tuple(input.shape[2:])
    sizes, scales = _for_each(size, axes), _for_each(scale_factor, axes)
    scales = scales and [float(each) for each in scales]

    # Not functional.interpolate: in deterministic mode, on CUDA, it calls a slow composition, and rounds differently.
    kernel: Any = getattr(torch.ops.aten, f"upsample_{mode}{axes}d").vec

    def forward(tensor: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = kernel(tensor, sizes, corners, scales)
        return result

    def band(axis: int, inputs: int, outputs: int, device: torch.device) -> Band:
        return _band(inputs, outputs, mode, corners, scales[axis] if scales else None, device)

    return apply(forward, lambda gradient: transposed_along_axes(gradient, inputs, band), input)


def _for_each(value: Any, axes: int) -> list[Any] | None:
    return None if value is None else list(value) if isinstance(value, Sequence) else [value] * axes


def _scaled(image: torch.Tensor, scale_factor: Any) -> tuple[int, ...]:
    sizes = image.shape[2:]
    scales = _for_each(scale_factor, len(sizes)) or []
    return tuple(math.floor(size * scale) for size, scale in zip(sizes, scales, strict=True))


def _band(inputs: int, outputs: int, mode: str, corners: bool, scale: float | None, device: torch.device) -> Band:
    """Output o looks at position ``ratio * o`` (aligned corners) or ``ratio * (o + 0.5) - 0.5``, and reaches `half`
    inputs to either side. The kernels are 0 where they end: an output that rounding moves in or out adds nothing."""
    half = 2 if mode == "bicubic" else 1
    if inputs == outputs and half == 1:
        scale = None  # PyTorch then copies, whatever scale factor was asked for
    if corners:
        ratio, shift = ((inputs - 1) / (outputs - 1) if outputs > 1 else 0.0), 0.0
    else:
        ratio, shift = (1 / scale if scale else inputs / outputs), 0.5
    place = torch.arange(inputs, device=device)
    number = place.to(precise(device))

    def weigh(output: torch.Tensor) -> torch.Tensor:
        position = (output.to(precise(device)) + shift) * ratio - shift
        if mode != "bicubic":
            return (1 - (position.clamp(0, inputs - 1) - number).abs()).clamp(min=0)
        start = position.floor()
        weight = torch.zeros_like(position)
        for tap in (-1, 0, 1, 2):
            here = (start + tap).clamp(0, inputs - 1) == number
            weight = weight + torch.where(here, _cubic((position - start - tap).abs()), 0)
        return weight

    if ratio == 0:  # every output looks at the first input
        return Band(torch.zeros_like(place), outputs, weigh)
    first = ((number - half + shift) / ratio - shift).floor().long() + 1
    return Band(first, math.ceil(2 * half / ratio), weigh)


def _cubic(distance: torch.Tensor) -> torch.Tensor:
    near = ((_A + 2) * distance - (_A + 3)) * distance * distance + 1
    far = ((_A * distance - 5 * _A) * distance + 8 * _A) * distance - 4 * _A
    return torch.where(distance <= 1, near, torch.where(distance < 2, far, 0))
