"""Linear operations whose gradient is computed here, in an order that is always the same.

On a CUDA device it is seldom the forward pass of an operation that varies from run to run: pooling, up-sampling and
padding read many inputs for each output. It is the gradient, in which many outputs add into one input, that PyTorch
computes with atomic additions. The operations of this package therefore keep PyTorch's forward pass, byte for byte,
and bring their own transpose, written as sums in a fixed order. The gradient of the transpose is the forward pass
again, so second derivatives are there as well.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch


class LinearMap(Protocol):
    """A linear function of one tensor, and its transpose.

    Attributes:
        constants: tensors that the function depends on besides its argument (an index, a target). Changing one of
            them in place before the backward pass is an error, as it is with PyTorch's own operations.
    """

    @property
    def constants(self) -> tuple[torch.Tensor, ...]: ...

    def forward(self, tensor: torch.Tensor) -> torch.Tensor:
        """The function's value."""

    def transposed(self, gradient: torch.Tensor) -> torch.Tensor:
        """From the gradient of the value to the gradient of the argument."""


def apply(linear_map: LinearMap, tensor: torch.Tensor) -> torch.Tensor:
    """``linear_map.forward(tensor)``, differentiable by ``linear_map.transposed``, any number of times."""
    if torch.is_grad_enabled() and tensor.requires_grad:
        result: torch.Tensor = _Forward.apply(tensor, linear_map)
        return result
    return linear_map.forward(tensor)


class _Forward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, linear_map: LinearMap) -> torch.Tensor:
        ctx.linear_map = linear_map
        ctx.save_for_backward(*linear_map.constants)
        return linear_map.forward(tensor)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        _ = ctx.saved_tensors  # raises where one was changed in place
        return _Transposed.apply(gradient, ctx.linear_map), None


class _Transposed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gradient: torch.Tensor, linear_map: LinearMap) -> torch.Tensor:
        ctx.linear_map = linear_map
        ctx.save_for_backward(*linear_map.constants)
        return linear_map.transposed(gradient)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        _ = ctx.saved_tensors
        return _Forward.apply(gradient, ctx.linear_map), None
