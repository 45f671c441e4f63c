"""Claims that every deterministic layer is held to: equal to PyTorch's own, differentiable alike, repeatable."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

needs_cuda = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="needs a CUDA device: the CPU's own kernels do not vary from run to run"
)

Function = Callable[[torch.Tensor], torch.Tensor]


def value_and_gradient(function: Function, tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The value, and the gradient of the value's product with fixed random numbers."""
    leaf = tensor.detach().clone(memory_format=torch.preserve_format).requires_grad_()
    value = function(leaf)
    cotangent = torch.randn(value.shape, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
    (gradient,) = torch.autograd.grad(value, leaf, cotangent.to(value.device, value.dtype))
    return value.detach(), gradient


def assert_same_as(original: Function, ours: Function, tensor: torch.Tensor, rtol: float = 1e-10) -> None:
    """Value and gradient are the original's, in float64 to within rounding."""
    expected, got = value_and_gradient(original, tensor), value_and_gradient(ours, tensor)
    for wanted, found in zip(expected, got, strict=True):
        torch.testing.assert_close(found, wanted, rtol=rtol, atol=rtol, equal_nan=True)


def assert_same_bytes_on_cuda(function: Function, tensor: torch.Tensor) -> None:
    """Ten times the same bytes without deterministic mode, and no error and the same bytes within it."""
    tensor = tensor.cuda()
    first = value_and_gradient(function, tensor)
    for _ in range(10):
        for wanted, found in zip(first, value_and_gradient(function, tensor), strict=True):
            assert torch.equal(wanted, found)
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        within = value_and_gradient(function, tensor)
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
    for wanted, found in zip(first, within, strict=True):
        assert torch.equal(wanted, found)


def nodes_of_graph(value: torch.Tensor) -> set[str]:
    """The names of all operations whose gradients a backward pass from `value` would compute."""
    nodes: set[Any] = set()
    waiting = [value.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is not None and node not in nodes:
            nodes.add(node)
            waiting.extend(following for following, _ in node.next_functions)
    return {node.name() for node in nodes}
