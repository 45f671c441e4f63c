"""`fingerprint`: a stable hash of a batch's keys, types, dtypes, shapes and bytes.

XXH3-128 over an encoding in which every value is preceded by its type and every variable length by its count, so that
two values share an encoding only if they are equal. It holds across processes, machines and Python versions: neither
hash order, nor addresses, nor pickles enter it.
"""

from __future__ import annotations

import dataclasses
import enum
import struct
from collections.abc import Callable
from pathlib import PurePath
from typing import Any

import numpy as np
import torch
import xxhash

_Update = Callable[[Any], Any]


def fingerprint(batch: Any) -> str:
    """32 hexadecimal digits; equal if and only if keys, types, dtypes, shapes and bytes are equal.

    Args:
        batch: nested dict / list / tuple / set of numpy arrays, torch tensors (on any device), numpy and Python
            scalars, str, bytes, None. The order of a dict's keys does not matter; of equal numbers, ``1``, ``1.0``,
            ``True`` and ``np.int64(1)`` all differ, as do an array and a tensor, a list and a tuple.

    Raises:
        TypeError: a value of another kind; the message says where it stands.
    """
    digest = xxhash.xxh3_128()
    _feed(digest.update, batch, "batch")
    return str(digest.hexdigest())


def _feed(update: _Update, value: Any, where: str) -> None:
    kind = type(value)
    if kind is np.ndarray or isinstance(value, np.ndarray):
        _feed_array(update, value, where)
    elif isinstance(value, torch.Tensor):
        _feed_tensor(update, value, where)
    elif isinstance(value, dict):
        _tag(update, "dict", value, dict)
        _count(update, len(value))
        encoded = {_encoded(key, f"{where}.keys()"): key for key in value}
        for code in sorted(encoded):
            update(code)
            _feed(update, value[encoded[code]], f"{where}[{encoded[code]!r}]")
    elif isinstance(value, (list, tuple)):
        base = list if isinstance(value, list) else tuple
        _tag(update, base.__name__, value, base)
        _count(update, len(value))
        for i, item in enumerate(value):
            _feed(update, item, f"{where}[{i}]")
    elif isinstance(value, (set, frozenset)):
        kind_of_set = frozenset if isinstance(value, frozenset) else set
        _tag(update, kind_of_set.__name__, value, kind_of_set)
        _count(update, len(value))
        for code in sorted(_encoded(item, where) for item in value):
            update(code)
    else:
        _feed_scalar(update, value, where)


def _encoded(value: Any, where: str) -> bytes:
    parts: list[bytes] = []
    _feed(lambda data: parts.append(bytes(data)), value, where)
    return b"".join(parts)


def _tag(update: _Update, name: str, value: Any, base: type) -> None:
    """The value's type. A subclass (OrderedDict, a named tuple) is another type than its base."""
    kind = type(value)
    _text(update, name if kind is base else f"{name}:{kind.__module__}.{kind.__qualname__}")


def _count(update: _Update, number: int) -> None:
    update(struct.pack("<Q", number))


def _text(update: _Update, text: str) -> None:
    data = text.encode("utf-8", "surrogatepass")
    _count(update, len(data))
    update(data)


def _feed_array(update: _Update, array: np.ndarray[Any, Any], where: str) -> None:
    _tag(update, "ndarray", array, np.ndarray)
    _text(update, _dtype_name(array.dtype))
    _count(update, array.ndim)
    for size in array.shape:
        _count(update, size)
    if isinstance(array, np.ma.MaskedArray):
        _feed_array(update, np.ma.getmaskarray(array), where)
        array = array.filled()
    if array.dtype.hasobject:
        if array.dtype != np.dtype(object):
            raise TypeError(f"cannot fingerprint {where}: structured arrays that hold objects have no stable bytes")
        for i, item in enumerate(array.ravel()):
            _feed(update, item, f"{where}.flat[{i}]")
    elif array.size:
        update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


def _dtype_name(dtype: np.dtype[Any]) -> str:
    return dtype.str if dtype.fields is None else repr(dtype.descr)


def _feed_tensor(update: _Update, tensor: torch.Tensor, where: str) -> None:
    _tag(update, "tensor", tensor, torch.Tensor)
    if tensor.layout != torch.strided or tensor.is_quantized:
        raise TypeError(f"cannot fingerprint {where}: only dense tensors are supported, got layout {tensor.layout}")
    _text(update, str(tensor.dtype))
    _count(update, tensor.ndim)
    for size in tensor.shape:
        _count(update, size)
    if tensor.numel():
        flat = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous().reshape(-1)
        update(flat.view(torch.uint8).numpy().data)


def _feed_scalar(update: _Update, value: Any, where: str) -> None:
    if isinstance(value, np.generic):
        _text(update, "scalar")
        _feed_array(update, np.asarray(value), where)
    elif isinstance(value, enum.Enum):
        _tag(update, "enum", value, enum.Enum)
        _text(update, value.name)
    elif value is None or isinstance(value, bool):
        _text(update, repr(value))
    elif isinstance(value, int):
        _tag(update, "int", value, int)
        _text(update, str(int(value)))
    elif isinstance(value, float):
        _tag(update, "float", value, float)
        update(struct.pack("<d", value))
    elif isinstance(value, complex):
        _tag(update, "complex", value, complex)
        update(struct.pack("<dd", value.real, value.imag))
    elif isinstance(value, str):
        _tag(update, "str", value, str)
        _text(update, value)
    elif isinstance(value, (bytes, bytearray)):
        _tag(update, type(value).__name__, value, type(value))
        _count(update, len(value))
        update(bytes(value))
    elif isinstance(value, PurePath):
        _text(update, "path")
        _text(update, value.as_posix())
    elif isinstance(value, (torch.dtype, torch.device)):
        _text(update, str(value))
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        _tag(update, "dataclass", value, object)
        for field in dataclasses.fields(value):
            _text(update, field.name)
            _feed(update, getattr(value, field.name), f"{where}.{field.name}")
    else:
        raise TypeError(
            f"cannot fingerprint {where}: {type(value).__module__}.{type(value).__qualname__} has no bytes that are "
            "the same in every process and Python version"
        )
