"""Batches of plain arrays and tensors in plain containers, as nearly all are: what they are made of, without a pickle.

Between two batches of megabytes the caches hold neither pickle's code nor the tables that it looks things up in; to describe two
tensors takes it longer than to copy one of a megabyte. Here that takes a quarter. What is not plain, and where one object occurs
twice, is left to pickle.
"""

from __future__ import annotations

import marshal
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch

from detaug.memory.blocks import Bytes

#: Data types by their character: those whose arrays NumPy and torch make without any more said.
_DTYPES = {char: np.dtype(char) for char in np.typecodes["AllInteger"] + np.typecodes["AllFloat"] + "?"}
_ATOMS = frozenset((str, int, float, bool, bytes, type(None)))
#: The first entry of what stands for something other than an atom.
_DICT, _LIST, _TUPLE, _ARRAY, _TENSOR, _SMALL_ARRAY, _SMALL_TENSOR = range(7)
#: With what a marshalled tuple begins, alone or where it may be referred to; pickles begin with 0x80.
_BEGINNINGS = frozenset((ord(")"), ord(")") | 0x80))


class _NotPlain(Exception):
    """Pickle does it."""


def describe(batch: Any, buffers: list[Bytes], small: int) -> bytes | None:
    """What `rebuild` makes the batch from, with `buffers`, to which its large parts are appended; None: it is not plain.

    Args:
        batch: anything.
        buffers: is left as it was where it is not plain.
        small: arrays below this size (bytes) are part of the description.
    """
    found: list[Bytes] = []
    try:
        description = marshal.dumps((_describe(batch, found, small, set()),))
    except _NotPlain:
        return None
    buffers += found
    return description


def is_description(data: Any) -> bool:
    """Whether that is no pickle."""
    return data[0] in _BEGINNINGS


def rebuild(description: Any, buffers: Iterable[Any]) -> Any:
    """The batch. Its arrays view `buffers`, and are writable where those are."""
    return _rebuild(marshal.loads(description)[0], iter(buffers))


def _describe(item: Any, buffers: list[Bytes], small: int, seen: set[int]) -> Any:
    kind = type(item)
    if kind in _ATOMS:
        return item
    if id(item) in seen:
        raise _NotPlain
    seen.add(id(item))
    if kind is torch.Tensor:
        return _describe_array(_array_of(item), buffers, small, 1)
    if kind is np.ndarray:
        if not item.flags.writeable:
            raise _NotPlain
        return _describe_array(item, buffers, small, 0)
    if kind is dict:
        if not all(type(key) is str for key in item):
            raise _NotPlain
        return _DICT, tuple(item), *[_describe(value, buffers, small, seen) for value in item.values()]
    if kind is list or kind is tuple:
        return _LIST if kind is list else _TUPLE, *[_describe(value, buffers, small, seen) for value in item]
    raise _NotPlain


def _array_of(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """Its memory."""
    if tensor.__dict__:
        raise _NotPlain
    try:
        array: np.ndarray[Any, Any] = tensor.numpy()
    except (TypeError, RuntimeError):  # it requires grad, is on another device, of a type that NumPy lacks ...
        raise _NotPlain from None
    strides = array.strides
    if sorted(strides, reverse=True) != list(strides):  # even where it counts as contiguous: the order is kept
        raise _NotPlain
    return array


def _describe_array(array: np.ndarray[Any, Any], buffers: list[Bytes], small: int, tensor: int) -> Any:
    """`tensor`: 1 where the array is to become one."""
    char: str = array.dtype.char
    if not array.flags.c_contiguous or array.nbytes == 0 or array.dtype is not _DTYPES.get(char):
        raise _NotPlain
    if array.nbytes < small:
        return _SMALL_ARRAY + tensor, char, array.shape, array.tobytes()
    buffers.append(array.reshape(-1).view(np.uint8))
    return _ARRAY + tensor, char, array.shape


def _rebuild(item: Any, buffers: Iterator[Any]) -> Any:
    if type(item) is not tuple:
        return item
    kind = item[0]
    if kind >= _ARRAY:
        if kind >= _SMALL_ARRAY:
            array: np.ndarray[Any, Any] = np.ndarray(item[2], _DTYPES[item[1]], item[3]).copy()
        else:
            array = np.ndarray(item[2], _DTYPES[item[1]], next(buffers))
        return torch.from_numpy(array) if kind in (_TENSOR, _SMALL_TENSOR) else array
    if kind == _DICT:
        return dict(zip(item[1], [_rebuild(value, buffers) for value in item[2:]], strict=True))
    values = [_rebuild(value, buffers) for value in item[1:]]
    return values if kind == _LIST else tuple(values)
