"""A batch as a small pickle and the large buffers beside it: `pack` and `unpack`.

Pickle's protocol 5 hands large buffers out instead of writing them; `bulk` makes arrays and tensors of every class do
that, `script_classes` the script's own classes come back as themselves. So a batch may be any picklable object, numpy
comes back as numpy, tensors as tensors, and the same object twice in a batch is the same object twice on the other
side.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from detaug.memory.blocks import Bytes
from detaug.transport.bulk import reduce_bulk
from detaug.transport.frozen import why_not_picklable
from detaug.transport.importing import loads
from detaug.transport.script_classes import reduce_by_name

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
        reduced = reduce_bulk(obj)
        return reduced if reduced is not NotImplemented else reduce_by_name(obj)


def pack(batch: Any) -> Packed:
    """Take a batch apart.

    Raises:
        TypeError: something in it cannot be pickled; the message names the key.
    """
    buffers: list[Bytes] = []

    def keep_in_pickle(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes < _SMALL or not _is_owned(raw):
            return True
        buffers.append(np.frombuffer(raw, dtype=np.uint8))
        return False

    file = io.BytesIO()
    try:
        _Pickler(file, protocol=5, buffer_callback=keep_in_pickle).dump(batch)
    except Exception as error:
        raise TypeError(f"the batch cannot be sent: {why_not_picklable(batch, 'batch', _error_of)}") from error
    return Packed(file.getvalue(), buffers)


def unpack(pickled: Any, buffers: Iterable[Any]) -> Any:
    """Put a batch together again. Its arrays view `buffers` and are writable where those are."""
    return loads(pickled, buffers)


def _is_owned(view: memoryview) -> bool:
    """Whether it keeps its memory. Views of memory in compiled code (SimpleITK's images) do not: it ends with the batch."""
    owner: Any = view
    while isinstance(owner, memoryview):
        owner = owner.obj
    return owner is not None


def _error_of(value: Any) -> Exception | None:
    try:
        _Pickler(io.BytesIO(), protocol=5, buffer_callback=lambda _: False).dump(value)
    except Exception as error:
        return error
    return None
