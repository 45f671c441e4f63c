"""Gives a transform a raw batch of its own: loaders return views of their data, or arrays from a cache, and a transform that
works in place would change later batches.
"""

from __future__ import annotations

import copy
import dataclasses
from collections import UserDict, UserList, deque
from typing import Any

import numpy as np
import torch


def own(item: Any, copies: dict[int, Any] | None = None) -> Any:
    """The item with copies of its arrays and tensors, in containers of the same classes; all other objects are passed on.

    What is read-only is left as it is: a write to it raises. `copies`, by ``id``: an array at two places stays one array.
    """
    copies = {} if copies is None else copies
    if id(item) not in copies:
        copies[id(item)] = _copy_of(item, copies)
    return copies[id(item)]


def _copy_of(item: Any, copies: dict[int, Any]) -> Any:
    if isinstance(item, np.ndarray):
        return item.copy(order="K") if item.flags.writeable else item
    if isinstance(item, torch.Tensor):
        return item.clone() if item.device.type == "cpu" and item.layout == torch.strided else item
    changed = {
        key: made for key, part in _parts_of(item) if (made := own(part, copies)) is not part
    }
    if not changed:
        return item
    if isinstance(item, tuple):
        items = [changed.get(place, part) for place, part in enumerate(item)]
        return item._make(items) if hasattr(item, "_make") else type(item)(items)
    made = copy.copy(item)
    write: Any = next(
        (base.__setitem__ for base in (dict, list, deque) if isinstance(made, base)),
        object.__setattr__,
    )
    for key, part in changed.items():
        write(made, key, part)
    return made


def _parts_of(container: Any) -> list[tuple[Any, Any]]:
    """By key, place or attribute. A subclass of dict may load what it is asked for, so that dict itself is asked."""
    if isinstance(container, dict):
        return list(dict.items(container))
    if isinstance(container, (list, tuple, deque)):
        return list(enumerate(container))
    if isinstance(container, (UserDict, UserList)):
        return [("data", container.data)]
    if dataclasses.is_dataclass(container):
        names = [each.name for each in dataclasses.fields(container)]
        return [(name, getattr(container, name)) for name in names if hasattr(container, name)]
    return []
