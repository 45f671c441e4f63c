"""A pipeline on its way to another interpreter: its structure and its bulk arrays in one block of shared memory.

All workers map the same block privately: the arrays are there once, and what a worker writes stays with it.
"""

from __future__ import annotations

import os
import pickle
import struct
from typing import Any

import numpy as np

from detaug.memory.blocks import Bytes, Mapping, create, reserve
from detaug.memory.layout import lay_out
from detaug.purity.bulk import MOST_BYTES, PrivateBlock
from detaug.transport.frozen import Frozen, Shared
from detaug.transport.tensors import rebuild_tensor, reduce_tensor

_HEADER = struct.Struct("<Q")


def write_payload(frozen: Frozen, job: Any) -> int:
    """A descriptor of the block that holds it all."""
    # A tensor travels as the array it views, with the rest of what makes it.
    reduced = [None if isinstance(item, np.ndarray) else reduce_tensor(item)[1] for item in frozen.shared]
    arrays = [
        np.ascontiguousarray(item if parts is None else parts[0])
        for item, parts in zip(frozen.shared, reduced, strict=True)
    ]
    kinds = [
        (array.dtype, array.shape, None if parts is None else parts[1:])
        for array, parts in zip(arrays, reduced, strict=True)
    ]
    layout = lay_out([array.nbytes for array in arrays])
    head = pickle.dumps((frozen.structure, kinds, layout, job), protocol=5)
    start = lay_out([_HEADER.size + len(head), 0]).offsets[1]
    size = start + max(layout.size, 1)
    descriptor = create(size)
    reserve(descriptor, size)
    block = Mapping(descriptor, size).bytes()
    block[: _HEADER.size] = np.frombuffer(_HEADER.pack(len(head)), dtype=np.uint8)
    block[_HEADER.size : _HEADER.size + len(head)] = np.frombuffer(head, dtype=np.uint8)
    for array, offset in zip(arrays, layout.offsets, strict=True):
        place = block[start + offset : start + offset + array.nbytes]
        np.copyto(place.view(array.dtype).reshape(array.shape), array)
    return descriptor


def read_payload(descriptor: int) -> tuple[Frozen, Any]:
    """What `write_payload` wrote. The arrays are private to this process; the descriptor stays open, for copies of them
    map the block again."""
    return _read(PrivateBlock(descriptor, os.fstat(descriptor).st_size).bytes())


def ship(frozen: Frozen, job: Any) -> Bytes:
    """The same in one array, for other machines."""
    descriptor = write_payload(frozen, job)
    try:
        return Mapping(descriptor, os.fstat(descriptor).st_size).bytes()
    finally:
        os.close(descriptor)


def read_shipped(block: Bytes) -> tuple[Frozen, Any]:
    """What `ship` gave, from memory that others read as well.

    The arrays are private to this process, as those of `read_payload`; above `detaug.purity.bulk.MOST_BYTES` in all they stay
    where they are, read-only.
    """
    if block.nbytes > MOST_BYTES:
        return _read(block)
    descriptor = create(block.nbytes)
    reserve(descriptor, block.nbytes)
    np.copyto(Mapping(descriptor, block.nbytes).bytes(), block)
    return read_payload(descriptor)


def _read(block: Bytes) -> tuple[Frozen, Any]:
    (length,) = _HEADER.unpack(block[: _HEADER.size].tobytes())
    structure, kinds, layout, job = pickle.loads(block[_HEADER.size : _HEADER.size + length].data)
    start = lay_out([_HEADER.size + length, 0]).offsets[1]
    shared: list[Shared] = []
    for (dtype, shape, tensor_parts), offset in zip(kinds, layout.offsets, strict=True):
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        array = block[start + offset : start + offset + size].view(dtype).reshape(shape)
        shared.append(array if tensor_parts is None else rebuild_tensor(array, *tensor_parts))
    return Frozen(structure, shared), job
