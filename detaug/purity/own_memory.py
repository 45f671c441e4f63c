"""Gives a transform a raw batch that no other object holds: arrays that the loader still holds are copied first.

Loaders return views of their data, or arrays from a cache: a transform that works in place would change later batches.
CPython counts the references to an object: if there are more than the batch explains, the array is copied.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import sys
from collections import UserDict, UserList, deque
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from detaug.memory.batch_memory import Span

_storage_references = torch._C._storage_Use_Count


def own(item: Any) -> Any:
    """The item, which the caller holds in one variable, with copies of arrays and tensors that something else refers to.

    What is read-only is left as it is: a write to it raises.
    """
    references = sys.getrefcount(item)  # by itself: an expression around it would hold another one
    kind: Any = type(item)
    if _reading(kind) is not None:
        return _owned(item, references > _BASE_ITEM)
    if isinstance(item, (np.ndarray, torch.Tensor)) and _needs_copy(item, references > _BASE_ITEM):
        return _copy(item)
    return item


@functools.lru_cache(maxsize=4096)
def _reading(kind: Any) -> Callable[[Any, Any], Any] | None:
    """How a part of a container is read; None: no container. What a handle of the data set leads to is no part of a batch."""
    for base in (dict, list, tuple, deque):
        if issubclass(kind, base):
            return base.__getitem__
    return getattr if issubclass(kind, (UserDict, UserList)) or dataclasses.is_dataclass(kind) else None


def _keys_of(container: Any) -> Any:
    if isinstance(container, dict):
        return list(dict.keys(container))
    if isinstance(container, (list, tuple, deque)):
        return range(len(container))
    if isinstance(container, (UserDict, UserList)):
        return ("data",)
    return [field.name for field in dataclasses.fields(container) if hasattr(container, field.name)]


def _with(container: Any, changed: dict[Any, Any]) -> Any:
    if isinstance(container, tuple):
        items = [changed.get(place, item) for place, item in enumerate(container)]
        try:
            made: Any = tuple.__new__(type(container), items)
        except TypeError:  # torch's and Python's own named tuples
            return type(container)(items)
        if hasattr(container, "__dict__"):
            vars(made).update(vars(container))
        return made
    made = copy.copy(container)
    write: Any = next((base.__setitem__ for base in (dict, list, deque) if isinstance(made, base)), object.__setattr__)
    for key, part in changed.items():
        write(made, key, part)
    return made


def _owned(container: Any, held: bool) -> Any:
    kind: Any = type(container)
    read: Any = _reading(kind)
    changed: dict[Any, Any] = {}
    copies: dict[int, Any] = {}
    for key in _keys_of(container):
        part = read(container, key)
        references = sys.getrefcount(part)
        inner: Any = type(part)
        if _reading(inner) is not None:
            made = _owned(part, held or references > _BASE_PART)
        elif isinstance(part, (np.ndarray, torch.Tensor)) and _needs_copy(part, held or references > _BASE_PART):
            made = copies.get(id(part))
            if made is None:
                made = copies[id(part)] = _copy(part)
        else:
            continue
        if made is not part:
            changed[key] = made
    return _with(container, changed) if changed else container


def _needs_copy(array: Any, held: bool) -> bool:
    """Whether something else may see the memory of an array, which is `held` by more than the batch."""
    if isinstance(array, torch.Tensor):
        if array.device.type != "cpu" or array.layout != torch.strided:
            return False
        storage = array.untyped_storage()
        if held or not storage.resizable():  # memory of a NumPy array, which somebody may hold
            return True
        return _storage_references(storage._cdata) > _BASE_STORAGE
    if not array.flags.writeable:
        return False
    owner = array.base
    if held or owner is None:
        return held
    if not isinstance(owner, np.ndarray) or sys.getrefcount(owner) > _BASE_OWNER:
        return True
    # The memory belongs to what is no array: a tensor, a buffer. What was made for this batch has one owner only.
    return owner.base is not None and not isinstance(owner.base, Span)


def _copy(array: Any) -> Any:
    return array.clone() if isinstance(array, torch.Tensor) else array.copy(order="K")


# How many references the code above itself holds: counted here with objects that nothing else holds.
_BASE_ITEM = _BASE_PART = _BASE_OWNER = _BASE_STORAGE = 1_000_000


def _count() -> tuple[int, int, int, int]:
    counted: dict[str, int] = {}

    def item_of(item: Any) -> None:
        counted["item"] = sys.getrefcount(item)

    def part_of(container: Any, key: str) -> None:
        part = container[key]
        counted["part"] = sys.getrefcount(part)

    def owner_of(array: Any) -> None:
        owner = array.base
        counted["owner"] = sys.getrefcount(owner)

    item = {"part": np.empty(1)}
    item_of(item)
    part_of(item, "part")
    owner_of(np.empty(2)[:1])
    tensor = torch.empty(1)
    storage = tensor.untyped_storage()
    return counted["item"], counted["part"], counted["owner"], _storage_references(storage._cdata)


_BASE_ITEM, _BASE_PART, _BASE_OWNER, _BASE_STORAGE = _count()
