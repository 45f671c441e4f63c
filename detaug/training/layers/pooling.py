"""AvgPool3d and adaptive average pooling with reproducible gradients.

The forward pass is PyTorch's. PyTorch's gradients of AvgPool3d and of AdaptiveAvgPool2d and 3d (1d is computed by 2d)
add atomically on CUDA and raise under `torch.use_deterministic_algorithms`. AvgPool1d and AvgPool2d are reproducible there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

from detaug.training.layers.linear_maps import HALF, Band, apply, each_axis, precise, tiled, transposed_along_axes


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
    kernel = each_axis(kernel_size, 3)
    no_stride = stride is None or (isinstance(stride, (tuple, list)) and not stride)
    steps = kernel if no_stride else each_axis(stride, 3)
    window = (kernel, steps, each_axis(padding, 3), bool(ceil_mode), bool(count_include_pad), divisor_override)
    return apply(_Pooling(tuple(input.shape[-3:]), *window), input)


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
    return apply(_Adaptive(tuple(image.shape[-axes:]), output_size), image)


@dataclass(frozen=True)
class _Pooling:
    """Windows of `kernel` inputs every `stride` inputs, for images of one size."""

    inputs: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    ceil_mode: bool
    count_include_pad: bool
    divisor_override: int | None

    def forward(self, tensor: torch.Tensor) -> torch.Tensor:
        window = (self.kernel, self.stride, self.padding, self.ceil_mode, self.count_include_pad)
        return functional.avg_pool3d(tensor, *window, self.divisor_override)

    def transposed(self, gradient: torch.Tensor) -> torch.Tensor:
        tiles = tuple(k * size for k, size in zip(self.kernel, gradient.shape[-3:], strict=True))
        if self.kernel == self.stride and self.inputs == tiles:
            return tiled(gradient, self.kernel, self.divisor_override)
        result = gradient.float() if gradient.dtype in HALF else gradient
        for axis in (-1, -2, -3):  # the tensor grows: inner ones first
            result = self._along(result, axis)
        return (result / self.divisor_override if self.divisor_override else result).to(gradient.dtype)

    def _along(self, gradient: torch.Tensor, axis: int) -> torch.Tensor:
        """The transpose along one axis: that of avg_pool2d, which is reproducible, on images ``(N, 1, outputs, rest)``."""
        shape, inputs = list(gradient.shape), self.inputs[axis]
        images = gradient.reshape(-1, 1, shape[axis], math.prod(shape[axis:][1:]))
        like = images.new_empty((len(images), 1, inputs, images.shape[-1]))
        window = [self.kernel[axis], 1], [self.stride[axis], 1], [self.padding[axis], 0]
        how = (self.ceil_mode, self.count_include_pad, 1 if self.divisor_override else None)
        result: torch.Tensor = torch.ops.aten.avg_pool2d_backward(images, like, *window, *how)
        shape[axis] = inputs
        return result.reshape(shape)


@dataclass(frozen=True)
class _Adaptive:
    """Windows from floor(o inputs / outputs) to ceil((o + 1) inputs / outputs), PyTorch's adaptive pooling."""

    inputs: tuple[int, ...]
    output_size: Any

    def forward(self, tensor: torch.Tensor) -> torch.Tensor:
        pool = (functional.adaptive_avg_pool1d, functional.adaptive_avg_pool2d, functional.adaptive_avg_pool3d)
        result: torch.Tensor = pool[len(self.inputs) - 1](tensor, self.output_size)
        return result

    def transposed(self, gradient: torch.Tensor) -> torch.Tensor:
        outputs = gradient.shape[-len(self.inputs) :]
        if all(size % out == 0 for size, out in zip(self.inputs, outputs, strict=True)):
            kernel = [size // out for size, out in zip(self.inputs, outputs, strict=True)]
            return tiled(gradient, kernel)
        return transposed_along_axes(gradient, self.inputs, self._band)

    def _band(self, axis: int, inputs: int, outputs: int, device: torch.device) -> Band:
        place = torch.arange(inputs, device=device)
        whole = inputs % outputs == 0 or outputs % inputs == 0

        def weigh(output: torch.Tensor) -> torch.Tensor:
            start, end = output * inputs // outputs, -(-(output + 1) * inputs // outputs)
            return ((start <= place) & (place < end)).to(precise(device)) / (end - start).clamp(min=1)

        return Band(place * outputs // inputs, -(-outputs // inputs) + (not whole), weigh)
