"""Gives a transform a raw batch that no other object holds: arrays that the loader still holds are copied first.

Loaders return views of their data, or arrays that they keep in a cache. A transform that works in place would change the data
of later batches. CPython counts the references to an object: if there are more than the batch explains, the array is
copied.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import torch

from detaug.memory.batch_memory import Span

_storage_references = torch._C._storage_Use_Count


def own(item: Any) -> Any:
    """The item, which the caller holds in one variable, with copies in place of arrays and tensors that something else
    refers to.

    Looks into dicts, lists and tuples of exactly these classes. What is read-only is left as it is: a write to it raises.
    """
    references = sys.getrefcount(item)  # by itself: an expression around it would hold another one
    kind = type(item)
    if kind is dict or kind is list or kind is tuple:
        return _owned(item, references > _BASE_ITEM)
    if isinstance(item, (np.ndarray, torch.Tensor)) and _needs_copy(item, False, references > _BASE_ITEM):
        return _copy(item)
    return item


def _owned(container: Any, held: bool) -> Any:
    """A dict, list or tuple with the same items, or with copies of those that are held elsewhere."""
    kind = type(container)
    keys = list(container) if kind is dict else range(len(container))
    owners = _owners(container, keys)
    changed: dict[Any, Any] = {}
    copies: dict[int, Any] = {}
    for key in keys:
        part = container[key]
        references = sys.getrefcount(part)
        inner = type(part)
        if inner is dict or inner is list or inner is tuple:
            made = _owned(part, held or references > _BASE_PART)
        elif isinstance(part, (np.ndarray, torch.Tensor)) and _needs_copy(
            part, held, references > _BASE_PART, owners.get(id(_memory_of(part)), 1)
        ):
            made = copies.setdefault(id(part), None)
            if made is None:
                made = copies[id(part)] = _copy(part)
        else:
            continue
        if made is not part:
            changed[key] = made
    if not changed:
        return container
    items = [changed.get(key, container[key]) for key in keys]
    return dict(zip(keys, items, strict=True)) if kind is dict else kind(items)


def _needs_copy(array: Any, held: bool, referred_to: bool, views: int = 1) -> bool:
    """Whether something else sees the memory of an array; `views`: how many of the batch's own do."""
    if isinstance(array, torch.Tensor):
        if array.device.type != "cpu" or array.layout != torch.strided:
            return False
        storage = array.untyped_storage()
        if held or referred_to or not storage.resizable():  # memory of a NumPy array, which somebody may hold
            return True
        return _storage_references(storage._cdata) > _BASE_STORAGE
    if not array.flags.writeable:
        return False
    owner = array.base
    if held or referred_to or not (owner is None or isinstance(owner, np.ndarray)):
        return True
    if owner is None:
        return False
    if sys.getrefcount(owner) > _BASE_OWNER + views - 1:
        return True
    # The memory belongs to what is no array: a tensor, a buffer. What was made for this batch has one owner only.
    return owner.base is not None and not isinstance(owner.base, Span)


def _memory_of(array: Any) -> Any:
    return array.base if isinstance(array, np.ndarray) and array.base is not None else array


def _owners(container: Any, keys: Any) -> dict[int, int]:
    """How many arrays of a container view the memory of one and the same array."""
    counts: dict[int, int] = {}
    for key in keys:
        part = container[key]
        if isinstance(part, np.ndarray) and part.base is not None:
            counts[id(part.base)] = counts.get(id(part.base), 0) + 1
    return counts


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
