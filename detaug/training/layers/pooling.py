"""AvgPool3d and adaptive average pooling with reproducible gradients.

The forward pass is PyTorch's. PyTorch's gradients of AvgPool3d and of AdaptiveAvgPool2d and 3d (1d is computed by 2d)
add atomically on CUDA and raise under `torch.use_deterministic_algorithms`. AvgPool1d and AvgPool2d are reproducible there.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.nn import functional

from detaug.training.layers.linear_maps import Band, apply, each_axis, precise, tiled, transposed_along_axes, widened


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

    def transposed(gradient: torch.Tensor) -> torch.Tensor:
        tiles = tuple(k * size for k, size in zip(kernel, gradient.shape[-3:], strict=True))
        if kernel == steps and not any(padded) and inputs == tiles:
            return tiled(gradient, kernel, divisor_override)
        result = widened(gradient)
        for axis in (2, 1, 0):  # the tensor grows: inner ones first
            # The transpose along one axis is that of avg_pool2d, which is reproducible, on images (N, 1, outputs, rest).
            shape = list(result.shape)
            images = result.reshape(-1, 1, shape[axis - 3], math.prod(shape[axis - 3 :][1:]))
            like = images.new_empty((len(images), 1, inputs[axis], images.shape[-1]))
            window = [kernel[axis], 1], [steps[axis], 1], [padded[axis], 0]
            how = ceil_mode, count_include_pad, 1 if divisor_override else None
            shape[axis - 3] = inputs[axis]
            result = torch.ops.aten.avg_pool2d_backward(images, like, *window, *how).reshape(shape)
        return (result / divisor_override if divisor_override else result).to(gradient.dtype)

    return apply(forward, transposed, input)


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
        outputs = gradient.shape[-axes:]
        if all(size % out == 0 for size, out in zip(sizes, outputs, strict=True)):
            return tiled(gradient, [size // out for size, out in zip(sizes, outputs, strict=True)])
        return transposed_along_axes(gradient, sizes, _band)

    return apply(lambda tensor: pool(tensor, output_size), transposed, image)


def _band(axis: int, inputs: int, outputs: int, device: torch.device) -> Band:  # noqa: ARG001
    place = torch.arange(inputs, device=device)
    whole = inputs % outputs == 0 or outputs % inputs == 0

    def weigh(output: torch.Tensor) -> torch.Tensor:
        start, end = output * inputs // outputs, -(-(output + 1) * inputs // outputs)
        return ((start <= place) & (place < end)).to(precise(device)) / (end - start).clamp(min=1)

    return Band(place * outputs // inputs, -(-outputs // inputs) + (not whole), weigh)
