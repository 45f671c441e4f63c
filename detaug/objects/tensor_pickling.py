"""What pickle writes for arrays and tensors, so that their bytes travel as buffers beside the
pickle.

torch's own pickles copy twice and go through a file format; NumPy writes what is strided, or of a
subclass, into the pickle. A class that has a way of its own for the bytes keeps it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

_PLAIN_TENSOR = (torch._utils._rebuild_tensor_v2, torch._utils._rebuild_tensor_v3)
_OF_SUBCLASS = torch._tensor._rebuild_from_type_v2
_PICKLING = ("__reduce_ex__", "__reduce__", "__setstate__", "__getstate__")


def reduce_bulk(obj: Any) -> Any:
    """How to write an array or a tensor; NotImplemented for everything else, and where pickle does
    well.
    """
    if isinstance(obj, np.ndarray):
        return _reduce_array(obj)
    if type(obj) is torch.Tensor and not obj.__dict__:
        return reduce_tensor(obj)
    return _reduce_subclass_of_tensor(obj) if isinstance(obj, torch.Tensor) else NotImplemented


def _reduce_array(array: np.ndarray[Any, Any]) -> Any:
    kind, flags = type(array), array.flags
    if array.dtype.hasobject:
        return NotImplemented
    if kind is np.ma.MaskedArray:  # NumPy's own way loses whether the mask is a hard one
        masked: Any = array
        return kind, (
            masked.data,
            masked.mask,
            None,
            False,
            True,
            0,
            masked._fill_value,
            True,
            masked._hardmask,
        )
    if kind is not np.ndarray:
        if any(getattr(kind, name, None) != getattr(np.ndarray, name, None) for name in _PICKLING):
            return NotImplemented
        return np.ndarray.view, (np.asarray(array), kind)
    if not flags.writeable:
        # It would arrive read-only; what is handed out is the user's to write to.
        return np.array(array).__reduce_ex__(5)
    return NotImplemented if flags.forc else np.ascontiguousarray(array).__reduce_ex__(5)


def reduce_tensor(tensor: torch.Tensor) -> Any:
    """What pickle is to write for a tensor: how to make it from its bytes, or NotImplemented for
    torch's own way.

    Dtype, shape, strides of dense tensors (channels_last), and requires_grad are kept; a view
    becomes a tensor of its own.

    Raises:
        TypeError: the tensor is part of a graph.
    """
    if not has_plain_memory(tensor):
        return NotImplemented
    _refuse_graph(tensor)
    plain = tensor.detach().resolve_conj().resolve_neg()
    if not torch.ops.aten.is_non_overlapping_and_dense(plain):
        plain = plain.contiguous()
    contents = plain.as_strided((plain.numel(),), (1,)).view(torch.uint8).numpy()
    return tensor_on, (
        contents,
        plain.dtype,
        0,
        tuple(plain.shape),
        plain.stride(),
        tensor.requires_grad,
    )


def _refuse_graph(tensor: torch.Tensor) -> None:
    if tensor.requires_grad and not tensor.is_leaf:
        raise TypeError(
            "a tensor that is part of a graph (requires_grad, not a leaf) cannot be sent; detach() "
            "it"
        )


def _reduce_subclass_of_tensor(tensor: torch.Tensor) -> Any:
    """The class's own pickle (MONAI's MetaTensor has none), with the tensor inside it written as an
    array.
    """
    _refuse_graph(tensor)
    reduced = tensor.__reduce_ex__(5)  # type: ignore[no-untyped-call]
    rebuild, arguments = reduced[:2] if isinstance(reduced, tuple) else (None, ())
    if (
        rebuild is not _OF_SUBCLASS
        or arguments[0] not in _PLAIN_TENSOR
        or tensor.requires_grad
        # The class runs torch's operations itself: a plain view of it cannot be had.
        or type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__
    ):
        return reduced
    with torch._C.DisableTorchFunctionSubclass():
        plain = reduce_tensor(tensor.as_subclass(torch.Tensor))
    if plain is NotImplemented:
        return reduced
    return (_OF_SUBCLASS, (plain[0], arguments[1], plain[1], *arguments[3:]), *reduced[2:])


def has_plain_memory(tensor: torch.Tensor) -> bool:
    """Return whether a tensor's elements lie in this process's memory, by their strides."""
    is_plain = tensor.layout == torch.strided and not tensor.is_quantized and not tensor.is_nested
    return is_plain and tensor.device.type == "cpu"


def tensor_on(
    memory: np.ndarray[Any, Any],
    dtype: torch.dtype,
    offset: int,
    shape: Any,
    strides: Any,
    requires_grad: bool,
) -> torch.Tensor:
    """A tensor that views these bytes."""
    storage = torch.from_numpy(memory).untyped_storage()
    tensor = torch.empty(0, dtype=dtype, device="cpu").set_(storage, offset, shape, strides)
    return tensor.requires_grad_() if requires_grad else tensor
