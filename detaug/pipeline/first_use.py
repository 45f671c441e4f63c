"""A warning about large objects that transforms load on first use, and so for every batch."""

from __future__ import annotations

import math
import sys
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import torch

from detaug.objects.walking import walk

#: Smaller objects (bytes) are not reported.
_LARGE = 2**20
#: How many objects are looked at.
_MOST_VALUES = 10_000


def loaded_on_first_use(
    pristine: Mapping[str, Any], used: Mapping[str, Any], keep: Collection[str]
) -> str:
    """Return a sentence about the largest object that making a batch has added to the transforms.

    Args:
        pristine: the transforms as they were passed, by the names that paths begin with.
        used: the copy of them that has made a batch.
        keep: names of attributes that stay, which are not reported.

    Returns:
        The sentence; empty if nothing large was added.
    """
    before = _large_objects(pristine)
    for path, size in _large_objects(used).items():
        name = path.rpartition(".")[2].partition("[")[0]
        if path not in before and name not in keep:
            return (
                f"the transforms load {path} ({size / 2**20:.0f} MB) when they are first used, and "
                "so for every batch, which starts from a copy of them as you passed them. Load it "
                f"before, or pass keep=({name!r},) if it may stay"
            )
    return ""


def _large_objects(transforms: Mapping[str, Any]) -> dict[str, int]:
    """Return the bytes of arrays, tensors and built-in containers by path, the largest first."""
    sizes = {}
    for path, value in walk(transforms.items(), _MOST_VALUES):
        size = _size_of(value)
        if size >= _LARGE:
            sizes[path] = size
    paths = sorted(sizes, key=sizes.__getitem__, reverse=True)
    return {path: sizes[path] for path in paths}


def _size_of(value: Any) -> int:
    """Return the bytes of an object alone. A long container is large even without its items."""
    if isinstance(value, (np.ndarray, torch.Tensor)):
        return value.itemsize * math.prod(value.shape)
    if type(value).__module__ != "builtins":
        # The __sizeof__ of a user's class may raise.
        return 0
    return sys.getsizeof(value)
