"""A batch as a small pickle and the large buffers beside it: `pack` and `unpack`.

Pickle's protocol 5 hands large buffers out instead of writing them; numpy arrays do that by themselves, torch tensors
are sent as the arrays that view them. So a batch may be any picklable object, numpy comes back as numpy, tensors as
tensors, and the same object twice in a batch is the same object twice on the other side.
"""

from __future__ import annotations

import io
import pickle
import types
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import cloudpickle
import numpy as np
import torch

from detaug.engine.memory import Bytes
from detaug.tensors import reduce_tensor

#: Buffers below this size (bytes) travel in the pickle.
_SMALL = 512


@dataclass
class Packed:
    """A batch, ready to be written.

    Attributes:
        pickled: its structure.
        buffers: its large parts, uint8, in the order in which `unpack` wants them.
    """

    pickled: bytes
    buffers: list[Bytes]


class _Pickler(pickle.Pickler):
    def reducer_override(self, obj: Any) -> Any:
        return _reduce_bulk(obj)


class _ScriptPickler(cloudpickle.Pickler):  # type: ignore[misc]
    """For objects of classes that the script itself defines.

    A fresh interpreter does not run the user's script; it got its classes by value, and sends them back by value.
    Lambdas and local functions stay refused, as everywhere.
    """

    def reducer_override(self, obj: Any) -> Any:
        reduced = _reduce_bulk(obj)
        if reduced is not NotImplemented:
            return reduced
        if isinstance(obj, types.FunctionType) and ("<lambda>" in obj.__qualname__ or "<locals>" in obj.__qualname__):
            return NotImplemented
        return super().reducer_override(obj)


def _reduce_bulk(obj: Any) -> Any:
    kind = type(obj)
    if kind is torch.Tensor:
        return reduce_tensor(obj)
    if kind is np.ndarray and not obj.dtype.hasobject:
        flags = obj.flags
        if not flags.writeable:
            # It would arrive read-only; what is handed out is the user's to write to.
            return np.array(obj).__reduce_ex__(5)
        if not (flags.c_contiguous or flags.f_contiguous):
            # numpy would write a strided array into the pickle itself.
            return np.ascontiguousarray(obj).__reduce_ex__(5)
    return NotImplemented


def pack(batch: Any) -> Packed:
    """Take a batch apart.

    Raises:
        TypeError: something in it cannot be pickled; the message names the key.
    """
    buffers: list[Bytes] = []

    def keep_in_pickle(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes < _SMALL:
            return True
        buffers.append(np.frombuffer(raw, dtype=np.uint8))
        return False

    file = io.BytesIO()
    try:
        _Pickler(file, protocol=5, buffer_callback=keep_in_pickle).dump(batch)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        try:
            buffers.clear()
            file = io.BytesIO()
            _ScriptPickler(file, protocol=5, buffer_callback=keep_in_pickle).dump(batch)
        except Exception:
            raise TypeError(f"the batch cannot be sent: {_culprit(batch, 'batch')}") from error
    except Exception as error:
        raise TypeError(f"the batch cannot be sent: {_culprit(batch, 'batch')}") from error
    return Packed(file.getvalue(), buffers)


def unpack(pickled: Any, buffers: Iterable[Any]) -> Any:
    """Put a batch together again. Its arrays view `buffers` and are writable where those are."""
    return pickle.loads(pickled, buffers=buffers)


def _culprit(value: Any, where: str) -> str:
    """Which part of a batch cannot be pickled, by its key."""
    parts: list[tuple[str, Any]] = []
    if isinstance(value, dict):
        parts = [(f"{where}[{key!r}]", part) for key, part in value.items()]
    elif isinstance(value, (list, tuple)):
        parts = [(f"{where}[{i}]", part) for i, part in enumerate(value)]
    for name, part in parts:
        if _error_of(part) is not None:
            return _culprit(part, name)
    return f"{where} of type {type(value).__name__} cannot be pickled: {_error_of(value)}"


def _error_of(value: Any) -> Exception | None:
    try:
        _ScriptPickler(io.BytesIO(), protocol=5, buffer_callback=lambda _: False).dump(value)
    except Exception as error:
        return error
    return None
