"""Linear operations whose gradient is computed here, always in the same order.

On CUDA, the forward pass of pooling and up-sampling is reproducible: each output reads its inputs.
The gradient is not, because many outputs are added atomically into one input. These operations keep
PyTorch's forward pass, byte for byte, and bring their own transpose: every input reads the outputs
that it went into, in ascending order, without atomic additions, matrix products (hence no cuBLAS
workspace and no TF32) or sorting.

The gradient of the transpose is the forward pass, so second derivatives work, as does
`torch.compile(fullgraph=True)`. TorchScript cannot express them: script or export a model before
`make_deterministic`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._prims_common import suggest_memory_format

HALF = (torch.float16, torch.bfloat16)

#: A linear function of one tensor.
Linear = Callable[[torch.Tensor], torch.Tensor]


class _Map(torch.autograd.Function):
    """A linear map, whose gradient is its transpose."""

    @staticmethod
    def forward(
        tensor: torch.Tensor,
        forward: Linear,
        transposed: Linear,  # noqa: ARG004
    ) -> torch.Tensor:
        return forward(tensor)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:  # noqa: ARG004
        # The tensor is not saved: the gradient of a linear map does not depend on it.
        tensor, *ctx.pair = inputs
        # The gradient has its channels last where the argument had.
        ctx.memory_format = suggest_memory_format(tensor)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        forward, transposed = ctx.pair
        # Applied as a `_Map` again, because second derivatives need its gradient.
        result = _Map.apply(gradient, transposed, forward)
        return result.contiguous(memory_format=ctx.memory_format), None, None


@dataclass(frozen=True)
class Band:
    """The outputs that each input of one axis goes into.

    Attributes:
        first: the first output of each input, (inputs,); may lie outside.
        count: outputs of one input, at most.
        weigh: from numbers of outputs (count, inputs) to the inputs' weights in them, of the same
            shape.
    """

    first: torch.Tensor
    count: int
    weigh: Linear


def apply(
    forward: Linear,
    inputs: Sequence[int],
    band: Callable[[int, int, int, torch.device], Band],
    tensor: torch.Tensor,
) -> torch.Tensor:
    """Return ``forward(tensor)``, which has derivatives of any order.

    Args:
        forward: a map that is separable along the last ``len(inputs)`` axes.
        inputs: sizes of those axes.
        band: called as ``band(index of the axis, inputs, outputs, device)``.
        tensor: the argument.
    """

    def transposed(gradient: torch.Tensor) -> torch.Tensor:
        first = gradient.ndim - len(inputs)
        result = gradient
        if gradient.dtype in HALF:
            # Half precision is summed in float32 and rounded once at the end.
            result = gradient.float()
        # Outer axes first where the tensor shrinks, inner ones first where it grows: inner ones
        # then meet a small tensor.
        indices = list(range(len(inputs)))
        if inputs[0] > gradient.shape[first]:
            indices.reverse()
        for index in indices:
            axis = first + index
            axis_band = band(index, inputs[index], gradient.shape[axis], gradient.device)
            result = _along_axis(result, axis, axis_band)
        return result.to(gradient.dtype)

    result: torch.Tensor = _Map.apply(tensor, forward, transposed)
    return result


def _along_axis(gradient: torch.Tensor, axis: int, band: Band) -> torch.Tensor:
    """Return the transpose along one axis: its size there is that of the input."""
    outputs = gradient.shape[axis]
    # (count, inputs): the numbers of the outputs that each input goes into. Some lie outside.
    output = band.first + torch.arange(band.count, device=band.first.device)[:, None]
    exists = (output >= 0) & (output < outputs)
    weight = torch.where(exists, band.weigh(output), 0).to(gradient.dtype)
    inner_axes = [1] * (gradient.ndim - axis - 1)
    weight = weight.view(band.count, -1, *inner_axes)
    result = gradient.index_select(axis, output[0].clamp(0, outputs - 1)) * weight[0]
    # In ascending order of the outputs, which is the same on every device. A turn adds one output
    # to every input, so that no two additions meet.
    for turn in range(1, band.count):
        part = gradient.index_select(axis, output[turn].clamp(0, outputs - 1))
        result = torch.addcmul(result, part, weight[turn])
    return result


def precise(device: torch.device) -> torch.dtype:
    """Return the dtype of positions and weights: float64, where the device has it."""
    # Apple's has no float64.
    return torch.float32 if device.type == "mps" else torch.float64
