"""Reducers for arrays and tensors, so that pickle hands their bytes out as buffers.

torch's own pickles copy twice and go through a file format; NumPy writes strided arrays, and those
of subclasses, into the pickle. A class with a pickling of its own keeps it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

_PLAIN_TENSOR = (torch._utils._rebuild_tensor_v2, torch._utils._rebuild_tensor_v3)
_OF_SUBCLASS = torch._tensor._rebuild_from_type_v2
_PICKLING = ("__reduce_ex__", "__reduce__", "__setstate__", "__getstate__")


def reduce_bulk(obj: Any) -> Any:
    """Reduce an array or a tensor.

    Returns:
        The reduced object; NotImplemented for any other object, and if pickle's own way is as good.
    """
    if isinstance(obj, np.ndarray):
        return _reduce_array(obj)
    if not isinstance(obj, torch.Tensor):
        return NotImplemented
    if type(obj) is torch.Tensor and not obj.__dict__:
        return reduce_tensor(obj)
    return _reduce_subclass_of_tensor(obj)


def _reduce_array(array: np.ndarray[Any, Any]) -> Any:
    kind = type(array)
    if array.dtype.hasobject:
        return NotImplemented
    if kind is not np.ndarray:
        return _reduce_subclass_of_array(array)
    if not array.flags.writeable:
        # It would arrive read-only; a batch is the user's to write to.
        return np.array(array).__reduce_ex__(5)
    if array.flags.forc:
        return NotImplemented
    return np.ascontiguousarray(array).__reduce_ex__(5)


def _has_own_pickling(kind: type) -> bool:
    """Return whether a subclass of `ndarray` defines its own pickling."""
    for name in _PICKLING:
        if getattr(kind, name, None) != getattr(np.ndarray, name, None):
            return True
    return False


def _reduce_subclass_of_array(array: np.ndarray[Any, Any]) -> Any:
    # Not for plain arrays: NumPy imports `numpy.ma` on first use, 10 ms in every worker.
    if type(array) is np.ma.MaskedArray:
        return _reduce_masked_array(array)
    if _has_own_pickling(type(array)):
        return NotImplemented
    return np.ndarray.view, (np.asarray(array), type(array))


def _reduce_masked_array(array: Any) -> Any:
    # NumPy's own way loses whether the mask is a hard one.
    arguments = (
        array.data,
        array.mask,
        None,
        False,
        True,
        0,
        array._fill_value,
        True,
        array._hardmask,
    )
    return type(array), arguments


def reduce_tensor(tensor: torch.Tensor) -> Any:
    """Reduce a tensor to its bytes.

    Dtype, shape, strides of dense tensors (channels_last), and requires_grad are kept; a view
    becomes a tensor of its own.

    Returns:
        The reduced tensor; NotImplemented if torch's own way is needed.

    Raises:
        TypeError: the tensor is part of a graph.
    """
    if not has_plain_memory(tensor):
        return NotImplemented
    _refuse_graph(tensor)
    plain = tensor.detach().resolve_conj().resolve_neg()
    # The elements of a view with gaps, or of one that overlaps itself, are no single run of bytes.
    if not torch.ops.aten.is_non_overlapping_and_dense(plain):
        plain = plain.contiguous()
    # In the order of memory, whatever the strides are: `tensor_on` restores them.
    in_memory_order = plain.as_strided((plain.numel(),), (1,))
    contents = in_memory_order.view(torch.uint8).numpy()
    shape = tuple(plain.shape)
    strides = plain.stride()
    return tensor_on, (contents, plain.dtype, 0, shape, strides, tensor.requires_grad)


def _refuse_graph(tensor: torch.Tensor) -> None:
    if tensor.requires_grad and not tensor.is_leaf:
        raise TypeError(
            "a tensor that is part of a graph (requires_grad, not a leaf) cannot be sent; detach() "
            "it"
        )


def _reduce_subclass_of_tensor(tensor: torch.Tensor) -> Any:
    """Reduce a tensor of a subclass in its own way, with the tensor inside it as an array.

    MONAI's MetaTensor, for example, has no way of its own.
    """
    _refuse_graph(tensor)
    reduced = tensor.__reduce_ex__(5)  # type: ignore[no-untyped-call]
    if not isinstance(reduced, tuple) or not _holds_plain_tensor(tensor, reduced):
        return reduced
    with torch._C.DisableTorchFunctionSubclass():
        plain = reduce_tensor(tensor.as_subclass(torch.Tensor))
    if plain is NotImplemented:
        return reduced
    function, function_arguments = plain
    arguments = reduced[1]
    rebuild_arguments = (function, arguments[1], function_arguments, *arguments[3:])
    return (_OF_SUBCLASS, rebuild_arguments, *reduced[2:])


def _holds_plain_tensor(tensor: torch.Tensor, reduced: tuple[Any, ...]) -> bool:
    """Return whether torch's default pickling of a subclass applies, around a plain tensor."""
    rebuild, arguments = reduced[:2]
    if rebuild is not _OF_SUBCLASS or arguments[0] not in _PLAIN_TENSOR:
        return False
    if tensor.requires_grad:
        return False
    # Otherwise the class runs torch's operations itself: a plain view of it cannot be had.
    return type(tensor).__torch_dispatch__ is torch.Tensor.__torch_dispatch__


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
    """Return a tensor that views these bytes.

    Args:
        memory: the bytes.
        dtype: the tensor's dtype.
        offset: that of its first element, in elements.
        shape: its shape.
        strides: its strides, in elements.
        requires_grad: whether its gradient is computed.
    """
    storage = torch.from_numpy(memory).untyped_storage()
    # "cpu" is named, because `torch.set_default_device` may have set another device.
    tensor = torch.empty(0, dtype=dtype, device="cpu")
    tensor.set_(storage, offset, shape, strides)
    if requires_grad:
        tensor.requires_grad_()
    return tensor
