"""Gives a transform a raw batch of its own: loaders return views of their data, or arrays from a
cache, and a transform that works in place would change later batches.
"""

from __future__ import annotations

import copy
from collections import deque
from typing import Any

import numpy as np
import torch

from detaug.objects.walking import items_of


def own(item: Any, copies: dict[int, Any] | None = None) -> Any:
    """Return the item with copies of its arrays and tensors, in containers of the same classes.

    All other objects are passed on. What is read-only is left as it is: a write to it raises.

    Args:
        item: a raw batch, or a part of one.
        copies: what was copied before, by ``id``: an array at two places stays one array.
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
    changed = {}
    for key, part in items_of(item):
        copied = own(part, copies)
        if copied is not part:
            changed[key] = copied
    if not changed:
        return item
    if isinstance(item, tuple):
        parts = [changed.get(place, part) for place, part in enumerate(item)]
        return item._make(parts) if hasattr(item, "_make") else type(item)(parts)
    result = copy.copy(item)
    for key, part in changed.items():
        _write(result, key, part)
    return result


def _write(container: Any, key: Any, part: Any) -> None:
    """Put a part into a container, past whatever its class does when it is written to."""
    for kind in (dict, list, deque):
        if isinstance(container, kind):
            kind.__setitem__(container, key, part)  # type: ignore[index]
            return
    object.__setattr__(container, key, part)
