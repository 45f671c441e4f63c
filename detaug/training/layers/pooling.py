"""AvgPool3d and adaptive average pooling with reproducible gradients.

The forward pass is PyTorch's. PyTorch's gradients of AvgPool3d and of AdaptiveAvgPool2d and 3d (1d is computed by 2d)
add atomically on CUDA and raise under `torch.use_deterministic_algorithms`. AvgPool1d and AvgPool2d are reproducible there.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from detaug.training.layers.linear_maps import Band, apply, each_axis, precise, transposed_along_axes


def avg_pool3d(
    input: torch.Tensor,  # noqa: A002
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> torch.Tensor:
    """As `torch.nn.functional.avg_pool3d`, for ``(N, C, D, H, W)`` or ``(C, D, H, W)``, with a deterministic gradient."""
    kernel, padded, inputs = each_axis(kernel_size, 3), each_axis(padding, 3), tuple(input.shape[-3:])
    no_stride = stride is None or (isinstance(stride, (tuple, list)) and not stride)
    steps = kernel if no_stride else each_axis(stride, 3)

    def forward(tensor: torch.Tensor) -> torch.Tensor:
        return functional.avg_pool3d(tensor, kernel, steps, padded, ceil_mode, count_include_pad, divisor_override)

    def band(axis: int, inputs: int, outputs: int, device: torch.device) -> Band:  # noqa: ARG001
        place, size, step, margin = torch.arange(inputs, device=device), kernel[axis], steps[axis], padded[axis]

        def weigh(output: torch.Tensor) -> torch.Tensor:
            start = output * step - margin
            end = (start + size).clamp(max=inputs + margin)
            counted = (end - start) if count_include_pad else end.clamp(max=inputs) - start.clamp(min=0)
            counted = counted.clamp(min=1)  # of outputs that do not exist
            if divisor_override:
                counted = torch.tensor(divisor_override if axis == 0 else 1, device=device)
            return ((start <= place) & (place < end)).to(precise(device)) / counted

        return Band(-((size - 1 - margin - place) // step), -(-size // step), weigh)

    return apply(forward, lambda gradient: transposed_along_axes(gradient, inputs, band), input)


def adaptive_avg_pool1d(input: torch.Tensor, output_size: Any) -> torch.Tensor:  # noqa: A002
    """As `torch.nn.functional.adaptive_avg_pool1d`, with a deterministic gradient."""
    return _adaptive(input, 1, output_size)


def adaptive_avg_pool2d(input: torch.Tensor, output_size: Any) -> torch.Tensor:  # noqa: A002
    """As `torch.nn.functional.adaptive_avg_pool2d`, with a deterministic gradient."""
    return _adaptive(input, 2, output_size)


def adaptive_avg_pool3d(input: torch.Tensor, output_size: Any) -> torch.Tensor:  # noqa: A002
    """As `torch.nn.functional.adaptive_avg_pool3d`, with a deterministic gradient."""
    return _adaptive(input, 3, output_size)


def _adaptive(image: torch.Tensor, axes: int, output_size: Any) -> torch.Tensor:
    """Windows from floor(o inputs / outputs) to ceil((o + 1) inputs / outputs)."""
    sizes = tuple(image.shape[-axes:])
    pool = (functional.adaptive_avg_pool1d, functional.adaptive_avg_pool2d, functional.adaptive_avg_pool3d)[axes - 1]

    def transposed(gradient: torch.Tensor) -> torch.Tensor:
        return transposed_along_axes(gradient, sizes, _band)

    return apply(lambda tensor: pool(tensor, output_size), transposed, image)


def _band(axis: int, inputs: int, outputs: int, device: torch.device) -> Band:  # noqa: ARG001
    place = torch.arange(inputs, device=device)
    whole = inputs % outputs == 0 or outputs % inputs == 0

    def weigh(output: torch.Tensor) -> torch.Tensor:
        start, end = output * inputs // outputs, -(-(output + 1) * inputs // outputs)
        return ((start <= place) & (place < end)).to(precise(device)) / (end - start).clamp(min=1)

    return Band(place * outputs // inputs, -(-outputs // inputs) + (not whole), weigh)
