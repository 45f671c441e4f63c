"""What pickle writes for arrays and tensors, so that their bytes travel as buffers beside the pickle.

NumPy and torch do that for their own classes alone, or not at all; a subclass (MetaTensor, memmap) they
copy several times and write into the pickle. Here the bytes go out of band, and everything else goes through the
class's own way of being pickled. A class that has a way of its own for the bytes as well keeps it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from detaug.transport.tensors import rebuild_leaf, rebuild_tensor, reduce_tensor

_Array = np.ndarray[Any, Any]
_PLAIN_TENSOR = (torch._utils._rebuild_tensor_v2, getattr(torch._utils, "_rebuild_tensor_v3", None))
_OF_SUBCLASS = torch._tensor._rebuild_from_type_v2
_PICKLING = ("__reduce_ex__", "__reduce__", "__setstate__", "__getstate__")


def reduce_bulk(obj: Any) -> Any:
    """How to write an array or a tensor; NotImplemented for everything else, and where pickle does well.

    Raises:
        TypeError: a tensor is part of a graph.
    """
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
    if all(getattr(kind, name, None) == getattr(np.ndarray, name, None) for name in _PICKLING):
        return np.ndarray.view, (np.asarray(array), kind)
    return NotImplemented


def _reduce_subclass_of_tensor(tensor: torch.Tensor) -> Any:
    """The class's own pickle, with the tensor inside it written as an array."""
    if tensor.requires_grad and not tensor.is_leaf:
        raise TypeError("a tensor that is part of a graph (requires_grad, not a leaf) cannot be sent; detach() it")
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
