"""What pickle writes for arrays and tensors, so that their bytes travel as buffers beside the pickle.

NumPy and torch do that for their own classes alone, or not at all: torch's own pickles copy twice and go through a file format,
a subclass (MetaTensor, memmap) is copied several times and written into the pickle. Here the bytes go out of band, and everything
else goes through the class's own way of being pickled. A class that has a way of its own for the bytes as well keeps it.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import torch

#: bytes → dtype. numpy has no dtype for bfloat16 and others; they travel as integers of the same width.
INTEGER_OF_WIDTH = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_Array = np.ndarray[Any, Any]
_PLAIN_TENSOR = (torch._utils._rebuild_tensor_v2, getattr(torch._utils, "_rebuild_tensor_v3", None))
_OF_SUBCLASS = torch._tensor._rebuild_from_type_v2
_PICKLING = ("__reduce_ex__", "__reduce__", "__setstate__", "__getstate__")


def reduce_tensor(tensor: torch.Tensor) -> Any:
    """What pickle is to write for a tensor: how to make it from an array, or NotImplemented for torch's own way.

    Dtype, shape, strides of dense tensors, and requires_grad are kept; a view becomes a tensor of its own.

    Raises:
        TypeError: the tensor is part of a graph.
    """
    if tensor.device.type != "cpu" or tensor.layout != torch.strided or tensor.is_quantized or tensor.is_nested:
        return NotImplemented
    _refuse_graph(tensor)
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


def _refuse_graph(tensor: torch.Tensor) -> None:
    if tensor.requires_grad and not tensor.is_leaf:
        raise TypeError("a tensor that is part of a graph (requires_grad, not a leaf) cannot be sent; detach() it")


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


def reduce_bulk(obj: Any) -> Any:
    """How to write an array or a tensor; NotImplemented for everything else, and where pickle does well."""
    kind = type(obj)
    if kind is np.ndarray:
        return _reduce_array(obj)
    if kind is torch.Tensor:
        return _reduce_subclass_of_tensor(obj) if obj.__dict__ else reduce_tensor(obj)
    if isinstance(obj, np.ndarray):
        return _reduce_subclass_of_array(obj)
    if isinstance(obj, torch.Tensor):
        return _reduce_subclass_of_tensor(obj)
    return NotImplemented


def _reduce_array(array: _Array) -> Any:
    if array.dtype.hasobject:
        return NotImplemented
    flags = array.flags
    if not flags.writeable:
        # It would arrive read-only; what is handed out is the user's to write to.
        return np.array(array).__reduce_ex__(5)
    if not (flags.c_contiguous or flags.f_contiguous):
        # numpy would write a strided array into the pickle itself.
        return np.ascontiguousarray(array).__reduce_ex__(5)
    return NotImplemented


def _reduce_subclass_of_array(array: _Array) -> Any:
    kind = type(array)
    if array.dtype.hasobject:
        return NotImplemented
    if kind is np.ma.MaskedArray:  # NumPy's own way loses whether the mask is a hard one
        return _rebuild_masked, (array.data, array.mask, array._fill_value, array._hardmask)  # type: ignore[attr-defined]
    if all(getattr(kind, name, None) == getattr(np.ndarray, name, None) for name in _PICKLING):
        return np.ndarray.view, (np.asarray(array), kind)
    return NotImplemented


def _rebuild_masked(data: _Array, mask: Any, fill_value: Any, hard: bool) -> Any:
    masked = np.ma.MaskedArray(data, mask=mask, copy=False, hard_mask=hard)
    masked._fill_value = fill_value  # type: ignore[attr-defined]  # the default one must stay unset
    return masked


def _reduce_subclass_of_tensor(tensor: torch.Tensor) -> Any:
    """The class's own pickle, with the tensor inside it written as an array."""
    _refuse_graph(tensor)
    reduced = tensor.__reduce_ex__(5)  # type: ignore[no-untyped-call]
    rebuild, arguments = reduced[:2] if isinstance(reduced, tuple) else (None, ())
    if rebuild is not _OF_SUBCLASS or arguments[0] not in _PLAIN_TENSOR or _has_dispatch(tensor):
        return reduced
    with torch._C.DisableTorchFunctionSubclass():
        plain = reduce_tensor(tensor.detach().as_subclass(torch.Tensor))
    if plain is NotImplemented:
        return reduced
    inner: tuple[Callable[..., Any], Any] = plain
    assert inner[0] is rebuild_tensor
    of_subclass = (_OF_SUBCLASS, (inner[0], arguments[1], inner[1], *arguments[3:]), *reduced[2:])
    return (rebuild_leaf, of_subclass[:2]) if tensor.requires_grad else of_subclass


def _has_dispatch(tensor: torch.Tensor) -> bool:
    """The class runs torch's operations itself; a plain view of it cannot be had."""
    return type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__
