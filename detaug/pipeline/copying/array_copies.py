"""Copies of the arrays in a raw batch, so that a transform may work in place.

Loaders return views of their data, or arrays from a cache: a transform that wrote into them would
change later batches.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from detaug.objects.walking import items_of


def copy_arrays(item: Any, copies: dict[int, Any] | None = None) -> Any:
    """Return the item with its arrays and tensors copied, in containers of the same classes.

    All other objects are passed on. A read-only array is passed on as well: a write to it raises.

    Args:
        item: a raw batch, or a part of one.
        copies: what was copied already, by ``id``: an array in two places stays one array.
    """
    if copies is None:
        copies = {}
    if id(item) not in copies:
        copies[id(item)] = _copy_of(item, copies)
    return copies[id(item)]


def _copy_of(item: Any, copies: dict[int, Any]) -> Any:
    if isinstance(item, np.ndarray):
        # "K": a transform may depend on the order of memory, and its result then does too.
        return item.copy(order="K") if item.flags.writeable else item
    if isinstance(item, torch.Tensor):
        is_in_memory = item.device.type == "cpu" and item.layout == torch.strided
        return item.clone() if is_in_memory else item
    # A container without arrays is passed on as it is: the object may be large, or not copyable.
    changed = {}
    for key, part in items_of(item):
        copied = copy_arrays(part, copies)
        if copied is not part:
            changed[key] = copied
    if not changed:
        return item
    if isinstance(item, tuple):
        return _tuple_with(item, changed)
    return _container_with(item, changed)


def _tuple_with(original: Any, changed: dict[Any, Any]) -> Any:
    """Return a tuple, or namedtuple, of the same class with some items replaced, by index."""
    items = [changed.get(index, item) for index, item in enumerate(original)]
    if hasattr(original, "_make"):
        return original._make(items)
    return type(original)(items)


def _container_with(original: Any, changed: dict[Any, Any]) -> Any:
    """Return a shallow copy with some items or attributes replaced."""
    container = copy.copy(original)
    set_part = _setter_of(container)
    for key, part in changed.items():
        set_part(container, key, part)
    return container


def _setter_of(container: Any) -> Callable[[Any, Any, Any], None]:
    """Return the built-in class's own setter."""
    # Not the object's own: that of a subclass may convert a value, or refuse it.
    for base in (dict, list, deque):
        if isinstance(container, base):
            return base.__setitem__
    return object.__setattr__
