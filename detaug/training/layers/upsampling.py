"""Interpolation (`torch.nn.functional.interpolate`, `torch.nn.Upsample`) whose gradient does not vary from run to run.

The forward pass is PyTorch's own, in every mode and with its rules for sizes, scale factors and aligned corners. The
gradients of linear, bilinear, bicubic, trilinear and area interpolation add atomically on CUDA devices and raise under
`torch.use_deterministic_algorithms`; these do neither. All modes are separable, so the gradient needs the weights of
one axis at a time only; they are read off PyTorch's own interpolation of a few unit signals.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from detaug.training.layers import linear_maps
from detaug.training.layers.axis_weights import AxisWeights, transposed_along_axes
from detaug.training.layers.pooling import adaptive_weights

_CORNERED = ("linear", "bilinear", "bicubic", "trilinear")

#: What `torch.nn.functional.interpolate` ends in, in the modes that deterministic mode treats in another way.
_KERNELS: dict[str, Any] = {
    "bilinear": torch.ops.aten.upsample_bilinear2d,
    "bicubic": torch.ops.aten.upsample_bicubic2d,
    "trilinear": torch.ops.aten.upsample_trilinear3d,
}


def interpolate(
    input: torch.Tensor,  # noqa: A002
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> torch.Tensor:
    """As `torch.nn.functional.interpolate`, in all its modes, with a deterministic gradient.

    Args:
        input: ``(N, C, L)``, ``(N, C, H, W)`` or ``(N, C, D, H, W)``; the other arguments are PyTorch's.
    """
    resize = _Resize(size, scale_factor, mode, align_corners, recompute_scale_factor, antialias)
    if not input.is_floating_point():
        return resize(input)
    return linear_maps.apply(_Interpolation(resize, input.shape, input.dtype), input)


def upsample(
    input: torch.Tensor,  # noqa: A002
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> torch.Tensor:
    """PyTorch's older name of `interpolate`."""
    return interpolate(input, size, scale_factor, mode, align_corners)


def upsample_nearest(input: torch.Tensor, size: Any = None, scale_factor: Any = None) -> torch.Tensor:  # noqa: A002
    """As `torch.nn.functional.upsample_nearest`."""
    return interpolate(input, size, scale_factor, mode="nearest")


def upsample_bilinear(input: torch.Tensor, size: Any = None, scale_factor: Any = None) -> torch.Tensor:  # noqa: A002
    """As `torch.nn.functional.upsample_bilinear`: bilinear with aligned corners."""
    return interpolate(input, size, scale_factor, mode="bilinear", align_corners=True)


class Upsample(torch.nn.Upsample):
    """`torch.nn.Upsample`, in all its modes, with a deterministic gradient."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002
        return interpolate(
            input,
            self.size,
            self.scale_factor,
            self.mode,
            self.align_corners,
            recompute_scale_factor=self.recompute_scale_factor,
        )


class UpsamplingNearest2d(torch.nn.UpsamplingNearest2d):
    """`torch.nn.UpsamplingNearest2d` with a deterministic gradient."""

    forward = Upsample.forward


class UpsamplingBilinear2d(torch.nn.UpsamplingBilinear2d):
    """`torch.nn.UpsamplingBilinear2d` with a deterministic gradient."""

    forward = Upsample.forward


@dataclass(frozen=True)
class _Resize:
    """The arguments of one call of PyTorch's interpolation."""

    size: Any
    scale_factor: Any
    mode: str
    align_corners: bool | None
    recompute_scale_factor: bool | None
    antialias: bool

    def __call__(self, tensor: torch.Tensor) -> torch.Tensor:
        if (
            torch.are_deterministic_algorithms_enabled()
            and not tensor.is_cpu
            and self.mode in _KERNELS
            and not self.antialias
        ):
            return self._by_kernel(tensor)
        return functional.interpolate(
            tensor,
            self.size,
            self.scale_factor,
            self.mode,
            self.align_corners,
            self.recompute_scale_factor,
            self.antialias,
        )

    def _by_kernel(self, tensor: torch.Tensor) -> torch.Tensor:
        """The kernel itself. In deterministic mode, PyTorch's function would take a slow composition of index_put
        instead, for the sake of a gradient that is not needed here, and round differently."""
        likeness = torch.empty_like(tensor, device="meta")
        shape = functional.interpolate(
            likeness, self.size, self.scale_factor, self.mode, self.align_corners, self.recompute_scale_factor
        ).shape[2:]
        scales = [self.scale_along(axis) for axis in range(len(shape))]
        by_size = scales[0] is None
        result: torch.Tensor = _KERNELS[self.mode].vec(
            tensor, list(shape) if by_size else None, bool(self.align_corners), None if by_size else scales
        )
        return result

    def scale_along(self, axis: int) -> float | None:
        """The scale factor that enters the coordinates; None where the ratio of the sizes does."""
        if self.scale_factor is None or self.recompute_scale_factor:
            return None
        each = self.scale_factor if isinstance(self.scale_factor, Sequence) else None
        return float(self.scale_factor if each is None else each[axis])


@dataclass(frozen=True)
class _Interpolation:
    """Interpolation as a linear map of a tensor of one shape."""

    resize: _Resize
    shape: torch.Size
    dtype: torch.dtype
    constants: tuple[torch.Tensor, ...] = ()

    def forward(self, tensor: torch.Tensor) -> torch.Tensor:
        return self.resize(tensor)

    def transposed(self, gradient: torch.Tensor) -> torch.Tensor:
        resize = self.resize
        precision = torch.float64 if self.dtype == torch.float64 else torch.float32
        axes = []
        for number, (inputs, outputs) in enumerate(zip(self.shape[2:], gradient.shape[2:], strict=True)):
            if resize.mode == "area":
                axes.append(adaptive_weights(inputs, outputs))
            else:
                corners = bool(resize.align_corners) if resize.mode in _CORNERED else None
                axes.append(
                    _probed_weights(
                        inputs,
                        outputs,
                        resize.scale_along(number),
                        resize.mode,
                        corners,
                        resize.antialias,
                        gradient.ndim - 2,
                        precision,
                        gradient.device,
                    )
                )
        return transposed_along_axes(gradient, axes, self.dtype)


@functools.lru_cache(maxsize=1024)
def _probed_weights(
    inputs: int,
    outputs: int,
    scale: float | None,
    mode: str,
    align_corners: bool | None,
    antialias: bool,
    ndim: int,
    precision: torch.dtype,
    device: torch.device,
) -> AxisWeights:
    """One axis' weights, from PyTorch's interpolation of signals that are 1 at every `spacing`-th input and 0 elsewhere.

    Each output depends on fewer than `spacing` neighbouring inputs, so each signal tells the weight of one of them:
    which one, the output's rough position decides.
    """
    ratio = _inputs_per_output(inputs, outputs, scale, bool(align_corners))
    reach = 3 + (math.ceil(3 * max(ratio, 1.0)) if antialias else 0)  # inputs on either side, generously
    spacing = 2 * reach + 2
    signals = torch.zeros(spacing, inputs, dtype=precision, device=device)
    for number in range(min(spacing, inputs)):
        signals[number, number::spacing] = 1
    weight = _interpolate_axis(signals, outputs, scale, mode, align_corners, antialias, ndim).cpu().numpy()
    signal, output_index = np.nonzero(weight)
    first_aligned = align_corners or mode == "nearest"
    middle = output_index * ratio if first_aligned else (output_index + 0.5) * ratio - 0.5
    nearest = np.clip(np.rint(middle).astype(np.int64), 0, inputs - 1)
    input_index = nearest - reach + (signal - (nearest - reach)) % spacing
    periods = [(inputs, outputs), (inputs - 1, outputs - 1), (1, 1), (1, max(round(1 / ratio), 1) if ratio else 1)]
    values = weight[signal, output_index].astype(np.float64)
    return AxisWeights(inputs, outputs, input_index, output_index, values, periods)


def _interpolate_axis(
    signals: torch.Tensor,
    outputs: int,
    scale: float | None,
    mode: str,
    align_corners: bool | None,
    antialias: bool,
    ndim: int,
) -> torch.Tensor:
    """``(number of signals, outputs)`` from ``(number of signals, inputs)``.

    The signals become images of `ndim` axes, all but the last of them one pixel wide, which interpolation leaves alone:
    PyTorch's kernels for one, two and three axes do not round half-way coordinates alike. (The last: with one pixel
    along the inner axis, PyTorch 2.15's antialiasing on the CPU mixes up its channels.)
    """
    ones = [1] * (ndim - 1)
    size, factor = ([*ones, outputs], None) if scale is None else (None, [1.0] * len(ones) + [scale])
    images = signals.view(len(signals), 1, *ones, signals.shape[1])
    with torch.no_grad(), warnings.catch_warnings(), torch.autocast(signals.device.type, enabled=False):
        warnings.simplefilter("ignore")
        result = functional.interpolate(images, size, factor, mode, align_corners, antialias=antialias)
    return result.view(len(signals), -1)


def _inputs_per_output(inputs: int, outputs: int, scale: float | None, align_corners: bool) -> float:
    if align_corners:
        return (inputs - 1) / (outputs - 1) if outputs > 1 else 0.0
    return 1 / scale if scale else inputs / outputs
