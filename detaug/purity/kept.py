"""Attributes that pass from batch to batch: those that the user names, and caches of libraries that are known to be pure."""

from __future__ import annotations

from collections.abc import Collection
from functools import cache

#: By class: attributes that hold what can be computed again from the object's arguments, and of which only copies are used.
#: batchgeneratorsv2 keeps a grid of coordinates by patch size (24 MB at nnU-Net's usual one, 70 ms to make).
_KNOWN_CACHES = {"batchgeneratorsv2.transforms.spatial.spatial.SpatialTransform": ("_grid_cache",)}


def kept_of(kind: type, names: Collection[str]) -> frozenset[str]:
    """The names that are kept of objects of that class: the user's, and its known caches."""
    known = _known_of(kind)
    return known.union(names) if names else known


@cache
def _known_of(kind: type) -> frozenset[str]:
    found: set[str] = set()
    for base in kind.__mro__:
        found.update(_KNOWN_CACHES.get(f"{base.__module__}.{base.__qualname__}", ()))
    return frozenset(found)
