"""Average pooling whose gradient does not vary from run to run.

The forward pass is PyTorch's own. PyTorch's gradients of AvgPool3d and of AdaptiveAvgPool2d and 3d (1d is computed by
2d) add atomically on CUDA devices and raise under `torch.use_deterministic_algorithms`; these do neither.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from detaug.training.layers import linear_maps
from detaug.training.layers.axis_weights import AxisWeights, transposed_along_axes

IntOrInts = int | Sequence[int]


def avg_pool1d(
    input: torch.Tensor,  # noqa: A002
    kernel_size: IntOrInts,
    stride: IntOrInts | None = None,
    padding: IntOrInts = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> torch.Tensor:
    """As `torch.nn.functional.avg_pool1d`, for ``(N, C, L)`` or ``(C, L)``, with a deterministic gradient."""
    geometry = _Geometry.of(1, kernel_size, stride, padding, count_include_pad, None)

    def pool(tensor: torch.Tensor) -> torch.Tensor:
        return functional.avg_pool1d(tensor, *_sizes(kernel_size, stride, padding), ceil_mode, count_include_pad)

    return linear_maps.apply(_Pooling(pool, input.shape, input.dtype, geometry), input)


def avg_pool2d(
    input: torch.Tensor,  # noqa: A002
    kernel_size: IntOrInts,
    stride: IntOrInts | None = None,
    padding: IntOrInts = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> torch.Tensor:
    """As `torch.nn.functional.avg_pool2d`, for ``(N, C, H, W)`` or ``(C, H, W)``, with a deterministic gradient."""
    geometry = _Geometry.of(2, kernel_size, stride, padding, count_include_pad, divisor_override)

    def pool(tensor: torch.Tensor) -> torch.Tensor:
        return functional.avg_pool2d(
            tensor, *_sizes(kernel_size, stride, padding), ceil_mode, count_include_pad, divisor_override
        )

    return linear_maps.apply(_Pooling(pool, input.shape, input.dtype, geometry), input)


def avg_pool3d(
    input: torch.Tensor,  # noqa: A002
    kernel_size: IntOrInts,
    stride: IntOrInts | None = None,
    padding: IntOrInts = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> torch.Tensor:
    """As `torch.nn.functional.avg_pool3d`, for ``(N, C, D, H, W)`` or ``(C, D, H, W)``, with a deterministic
    gradient."""
    geometry = _Geometry.of(3, kernel_size, stride, padding, count_include_pad, divisor_override)

    def pool(tensor: torch.Tensor) -> torch.Tensor:
        return functional.avg_pool3d(
            tensor, *_sizes(kernel_size, stride, padding), ceil_mode, count_include_pad, divisor_override
        )

    return linear_maps.apply(_Pooling(pool, input.shape, input.dtype, geometry), input)


def adaptive_avg_pool1d(input: torch.Tensor, output_size: Any) -> torch.Tensor:  # noqa: A002
    """As `torch.nn.functional.adaptive_avg_pool1d`, with a deterministic gradient."""
    return _adaptive(functional.adaptive_avg_pool1d, 1, input, output_size)


def adaptive_avg_pool2d(input: torch.Tensor, output_size: Any) -> torch.Tensor:  # noqa: A002
    """As `torch.nn.functional.adaptive_avg_pool2d`, with a deterministic gradient."""
    return _adaptive(functional.adaptive_avg_pool2d, 2, input, output_size)


def adaptive_avg_pool3d(input: torch.Tensor, output_size: Any) -> torch.Tensor:  # noqa: A002
    """As `torch.nn.functional.adaptive_avg_pool3d`, with a deterministic gradient."""
    return _adaptive(functional.adaptive_avg_pool3d, 3, input, output_size)


class AvgPool1d(torch.nn.AvgPool1d):
    """`torch.nn.AvgPool1d` with a deterministic gradient."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002
        return avg_pool1d(input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad)


class AvgPool2d(torch.nn.AvgPool2d):
    """`torch.nn.AvgPool2d` with a deterministic gradient."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002
        return avg_pool2d(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.count_include_pad,
            self.divisor_override,
        )


class AvgPool3d(torch.nn.AvgPool3d):
    """`torch.nn.AvgPool3d` with a deterministic gradient."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002
        return avg_pool3d(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.count_include_pad,
            self.divisor_override,
        )


class AdaptiveAvgPool1d(torch.nn.AdaptiveAvgPool1d):
    """`torch.nn.AdaptiveAvgPool1d` with a deterministic gradient."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002
        return adaptive_avg_pool1d(input, self.output_size)


class AdaptiveAvgPool2d(torch.nn.AdaptiveAvgPool2d):
    """`torch.nn.AdaptiveAvgPool2d` with a deterministic gradient."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002
        return adaptive_avg_pool2d(input, self.output_size)


class AdaptiveAvgPool3d(torch.nn.AdaptiveAvgPool3d):
    """`torch.nn.AdaptiveAvgPool3d` with a deterministic gradient."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002
        return adaptive_avg_pool3d(input, self.output_size)


@dataclass(frozen=True)
class _Geometry:
    """A pooling window's arguments, one number for each axis; `kernel` is None for adaptive pooling."""

    ndim: int
    kernel: tuple[int, ...] | None = None
    stride: tuple[int, ...] = ()
    padding: tuple[int, ...] = ()
    count_include_pad: bool = True
    divisor_override: int | None = None

    @classmethod
    def of(
        cls,
        ndim: int,
        kernel_size: IntOrInts,
        stride: IntOrInts | None,
        padding: IntOrInts,
        count_include_pad: bool,
        divisor_override: int | None,
    ) -> _Geometry:
        kernel = _each_axis(kernel_size, ndim)
        no_stride = stride is None or (not isinstance(stride, int) and len(stride) == 0)
        steps = kernel if no_stride or stride is None else _each_axis(stride, ndim)
        return cls(ndim, kernel, steps, _each_axis(padding, ndim), count_include_pad, divisor_override)

    def weights(self, axis: int, inputs: int, outputs: int) -> AxisWeights:
        if self.kernel is None:
            return adaptive_weights(inputs, outputs)
        weighting = "plain" if self.divisor_override else "padded" if self.count_include_pad else "inside"
        return _window_weights(inputs, outputs, self.kernel[axis], self.stride[axis], self.padding[axis], weighting)


@dataclass(frozen=True)
class _Pooling:
    """Average pooling as a linear map of a tensor of one shape."""

    pool: Callable[[torch.Tensor], torch.Tensor]
    shape: torch.Size
    dtype: torch.dtype
    geometry: _Geometry
    constants: tuple[torch.Tensor, ...] = ()

    def forward(self, tensor: torch.Tensor) -> torch.Tensor:
        return self.pool(tensor)

    def transposed(self, gradient: torch.Tensor) -> torch.Tensor:
        first = gradient.ndim - self.geometry.ndim
        axes = [
            self.geometry.weights(number, self.shape[first + number], gradient.shape[first + number])
            for number in range(self.geometry.ndim)
        ]
        scale = 1 / self.geometry.divisor_override if self.geometry.divisor_override else 1.0
        return transposed_along_axes(gradient, axes, self.dtype, scale)


@functools.lru_cache(maxsize=1024)
def _window_weights(inputs: int, outputs: int, kernel: int, stride: int, padding: int, weighting: str) -> AxisWeights:
    """Windows of `kernel` inputs every `stride` inputs. A window may reach into the padding and, in ceil mode, past
    it; what is past it never counts."""
    start = np.arange(outputs) * stride - padding
    end = np.minimum(start + kernel, inputs + padding)
    with_padding = end - start
    start, end = np.maximum(start, 0), np.minimum(end, inputs)
    count = {"plain": np.ones(outputs), "padded": with_padding, "inside": np.maximum(end - start, 1)}[weighting]
    return _windows(inputs, outputs, start, end, 1 / count, [(stride, 1)])


@functools.lru_cache(maxsize=1024)
def adaptive_weights(inputs: int, outputs: int) -> AxisWeights:
    """Windows from floor(o inputs / outputs) to ceil((o + 1) inputs / outputs), PyTorch's adaptive pooling."""
    number = np.arange(outputs)
    start = number * inputs // max(outputs, 1)
    end = -(-(number + 1) * inputs // max(outputs, 1))
    return _windows(inputs, outputs, start, end, 1 / np.maximum(end - start, 1), [(inputs, max(outputs, 1))])


def _windows(
    inputs: int, outputs: int, start: Any, end: Any, weight: Any, periods: Sequence[tuple[int, int]]
) -> AxisWeights:
    length = np.maximum(end - start, 0)
    output_index = np.repeat(np.arange(outputs), length)
    within = np.arange(length.sum()) - np.repeat(np.cumsum(length) - length, length)
    return AxisWeights(inputs, outputs, start[output_index] + within, output_index, weight[output_index], periods)


def _adaptive(pool: Callable[..., Any], ndim: int, tensor: torch.Tensor, output_size: Any) -> torch.Tensor:
    def bound(value: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = pool(value, output_size)
        return result

    return linear_maps.apply(_Pooling(bound, tensor.shape, tensor.dtype, _Geometry(ndim)), tensor)


def _sizes(kernel_size: Any, stride: Any, padding: Any) -> tuple[Any, Any, Any]:
    """What PyTorch's functions take: no stride is an empty list for the older of them."""
    return kernel_size, () if stride is None else stride, padding


def _each_axis(value: IntOrInts, ndim: int) -> tuple[int, ...]:
    if isinstance(value, int):
        return (value,) * ndim
    values = tuple(value)
    return values * ndim if len(values) == 1 else values
