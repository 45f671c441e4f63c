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
    @staticmethod
    def forward(tensor: torch.Tensor, forward: Linear, transposed: Linear) -> torch.Tensor:  # noqa: ARG004
        return forward(tensor)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:  # noqa: ARG004
        tensor, *ctx.pair = inputs
        ctx.memory_format = suggest_memory_format(
            tensor
        )  # channels last where the argument had them there

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        forward, transposed = ctx.pair
        return (
            _Map.apply(gradient, transposed, forward).contiguous(memory_format=ctx.memory_format),
            None,
            None,
        )


@dataclass(frozen=True)
class Band:
    """The outputs that each input of one axis goes into.

    Attributes:
        first: the first of them (inputs,); may lie outside.
        count: how many there are at most.
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
    """``forward(tensor)``, of a map that is separable along the last ``len(inputs)`` axes; it has
    derivatives of any order.

    Args:
        inputs: sizes of those axes.
        band: ``band(number of the axis, inputs, outputs, device)``.
    """

    def transposed(gradient: torch.Tensor) -> torch.Tensor:
        first = gradient.ndim - len(inputs)
        # Half precision is summed in float32 and rounded once at the end.
        result = gradient.float() if gradient.dtype in HALF else gradient
        # Outer axes first where the tensor shrinks, inner ones first where it grows: inner ones
        # then meet a small tensor.
        numbers = range(len(inputs))
        for number in numbers if inputs[0] <= gradient.shape[first] else reversed(numbers):
            axis = first + number
            result = _along_axis(
                result, axis, band(number, inputs[number], gradient.shape[axis], gradient.device)
            )
        return result.to(gradient.dtype)

    result: torch.Tensor = _Map.apply(tensor, forward, transposed)
    return result


def _along_axis(gradient: torch.Tensor, axis: int, band: Band) -> torch.Tensor:
    outputs = gradient.shape[axis]
    output = band.first + torch.arange(band.count, device=band.first.device)[:, None]
    weight = torch.where((output >= 0) & (output < outputs), band.weigh(output), 0).to(
        gradient.dtype
    )
    weight = weight.view(band.count, -1, *[1] * (gradient.ndim - axis - 1))
    result = gradient.index_select(axis, output[0].clamp(0, outputs - 1)) * weight[0]
    for turn in range(1, band.count):
        part = gradient.index_select(axis, output[turn].clamp(0, outputs - 1))
        result = torch.addcmul(result, part, weight[turn])
    return result


def precise(device: torch.device) -> torch.dtype:
    """What positions and weights are computed in: float64, where the device has it."""
    return torch.float32 if device.type == "mps" else torch.float64
