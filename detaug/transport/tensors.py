"""Torch tensors as numpy arrays and back, for pickling: torch's own pickles copy twice and go through a file format."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import torch

#: bytes → dtype. numpy has no dtype for bfloat16 and others; they travel as integers of the same width.
INTEGER_OF_WIDTH = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def reduce_tensor(tensor: torch.Tensor) -> Any:
    """What pickle is to write for a tensor: how to make it from an array, or NotImplemented for torch's own way.

    Dtype, shape, strides of dense tensors, and requires_grad are kept; a view becomes a tensor of its own.

    Raises:
        TypeError: the tensor is part of a graph.
    """
    if tensor.device.type != "cpu" or tensor.layout != torch.strided or tensor.is_quantized or tensor.is_nested:
        return NotImplemented
    if tensor.requires_grad and not tensor.is_leaf:
        raise TypeError("a tensor that is part of a graph (requires_grad, not a leaf) cannot be sent; detach() it")
    plain = tensor.detach().resolve_conj().resolve_neg()
    # A dense tensor in another order (channels_last) keeps its strides: it is sent as the contiguous one it permutes.
    strides = plain.stride()
    order = as_it_is = list(range(plain.ndim))
    dense = plain
    if not plain.is_contiguous() or any(a < b for a, b in pairwise(strides)):
        order = sorted(as_it_is, key=lambda d: (-strides[d], d))
        dense = plain.permute(order)
    if not dense.is_contiguous():
        order, dense = as_it_is, plain.contiguous()
    dtype: torch.dtype | None = None
    try:
        array = dense.numpy()
    except TypeError:
        dtype = plain.dtype
        array = dense.view(INTEGER_OF_WIDTH[plain.element_size()]).numpy()
    back = None if order == as_it_is else tuple(int(i) for i in np.argsort(order))
    return rebuild_tensor, (array, dtype, back, tensor.requires_grad)


def rebuild_tensor(
    array: np.ndarray[Any, Any], dtype: torch.dtype | None, order: tuple[int, ...] | None, requires_grad: bool
) -> torch.Tensor:
    """The tensor that `reduce_tensor` took apart; it views `array`."""
    tensor = torch.from_numpy(array)
    if dtype is not None:
        tensor = tensor.view(dtype)
    if order is not None:
        tensor = tensor.permute(order)
    return tensor.requires_grad_() if requires_grad else tensor


def rebuild_leaf(rebuild: Callable[..., torch.Tensor], arguments: tuple[Any, ...]) -> torch.Tensor:
    """A tensor of any class that requires grad: a class is given by a view, which would be no leaf if it were set before."""
    return rebuild(*arguments).requires_grad_()
