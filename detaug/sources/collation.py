"""torch's default collation, with the large tensors stacked where the batch will travel."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.data._utils.collate import collate, collate_tensor_fn, default_collate_fn_map

from detaug.memory.batch_memory import SMALLEST, shared_empty


def default_collate(samples: list[Any], in_place: bool) -> Any:
    """As `torch.utils.data.default_collate`, which users extend by its `default_collate_fn_map`.

    Args:
        samples: what the data set gave.
        in_place: nothing is done to the batch any more, so that its large tensors may lie in the batch's shared memory.
    """
    functions = dict(default_collate_fn_map)
    if in_place and functions.get(torch.Tensor) is collate_tensor_fn:
        functions[torch.Tensor] = _stack
    return collate(samples, collate_fn_map=functions)


def _stack(tensors: list[torch.Tensor], *, collate_fn_map: Any = None) -> torch.Tensor:
    first = tensors[0]
    if (
        first.nbytes * len(tensors) >= SMALLEST
        and all(type(t) is torch.Tensor and t.shape == first.shape and t.dtype == first.dtype for t in tensors)
        and all(t.device.type == "cpu" and t.layout == torch.strided and not t.requires_grad for t in tensors)
        and all(t.is_contiguous() and not t.is_conj() and not t.is_neg() for t in tensors)
        and first.dtype in _KINDS
    ):
        array = shared_empty((len(tensors), *first.shape), _KINDS[first.dtype])
        if array is not None:
            return torch.stack(tensors, 0, out=torch.from_numpy(array))
    stacked: torch.Tensor = collate_tensor_fn(tensors, collate_fn_map=collate_fn_map)
    return stacked


_KINDS = {
    kind: torch.empty(0, dtype=kind).numpy().dtype
    for kind in (
        *(torch.float16, torch.float32, torch.float64, torch.complex64, torch.complex128),
        *(torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool),
    )
}
