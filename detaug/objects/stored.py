"""The numbers that libraries' objects store and show in no attribute: images, trees, tables for C.

They are in what such an object gives to `pickle`. Its class has the method for that, so it has run
before: when the pipeline was copied.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from itertools import islice
from typing import Any

import numpy as np
import torch

from detaug.objects.references import is_the_users_own
from detaug.objects.walking import attributes_of, leaves, slots_of

_PICKLING = ("__reduce_ex__", "__reduce__", "__getstate__")
#: How many parts of what an object stores are looked at.
_MOST_PARTS = 1_000
#: Bytes. A larger buffer is data.
_LARGEST_BUFFER = 4 * 2**20
#: These are parts themselves.
_WHOLE = (np.ndarray, np.generic, torch.Tensor)
#: How far objects are followed that are stored in others.
_DEEPEST = 3


def stored_arrays(value: Any) -> list[np.ndarray]:
    """Return the arrays that an object stores when it is pickled, and has not as attributes.

    Bytes are an array of uint8, and all floats together are one array. Arrays of bytes are left
    out: they are memory, and may hold addresses, as the nodes of SciPy's trees do.

    Returns:
        The arrays in their order; none if a class of the user's says what is stored, or none does,
        or the object cannot be pickled.
    """
    arrays = []
    floats = []
    for part in islice(_stored_parts(value, _DEEPEST), _MOST_PARTS):
        if isinstance(part, float):
            floats.append(part)
            continue
        array = _array_of(part)
        if array is not None:
            arrays.append(array)
    if floats:
        arrays.append(np.array(floats))
    return arrays


def _stored_parts(value: Any, depth: int) -> Iterator[Any]:
    """Yield what an object stores, and what objects store that it stores.

    A transform of SimpleITK may store an image, or other transforms.
    """
    kind: Any = type(value)
    if not depth or isinstance(value, _WHOLE) or not _is_stored_by_library(kind):
        return
    try:
        stored = value.__reduce_ex__(pickle.HIGHEST_PROTOCOL)
    except Exception:
        # A library may raise anything. What cannot be pickled is told when it is copied.
        return
    if not isinstance(stored, tuple):
        return
    shown = {id(item) for item in slots_of(value).values()}
    shown.update(map(id, (attributes_of(value) or {}).values()))
    # The arguments of the constructor, and the state.
    for _, part in leaves(stored[1:3]):
        if id(part) not in shown:
            yield part
            yield from _stored_parts(part, depth - 1)


def _array_of(part: Any) -> np.ndarray | None:
    if isinstance(part, (bytes, bytearray)) and part:
        return np.frombuffer(part, np.uint8)
    if isinstance(part, pickle.PickleBuffer):
        return _copy_of(part)
    if not isinstance(part, np.ndarray):
        return None
    has_numbers = part.dtype.kind in "iufc" and part.dtype.itemsize > 1
    return part if has_numbers else None


def _copy_of(buffer: pickle.PickleBuffer) -> np.ndarray | None:
    """Return the bytes of a buffer; None if it is large, or has gaps.

    It is an object's own memory, and that object may live no longer than what stores it.
    """
    with suppress(BufferError), buffer.raw() as memory:
        if memory.nbytes <= _LARGEST_BUFFER:
            return np.frombuffer(memory, np.uint8).copy()
    return None


@lru_cache(maxsize=4096)
def _is_stored_by_library(kind: type) -> bool:
    """Return whether a class of a library's says what is stored of its objects."""
    for owner in kind.__mro__:
        if not vars(owner).keys().isdisjoint(_PICKLING):
            return owner is not object and not is_the_users_own(owner)
    return False
