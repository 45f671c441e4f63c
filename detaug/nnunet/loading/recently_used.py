"""Things by name, of which the least recently used are forgotten."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class RecentlyUsed(Generic[K, T]):
    """What was loaded, the least recently used of it forgotten when all of it weighs too much.

    These are kept per process and not per loader: what they remember never changes a batch.

    Args:
        load: key -> (value, weight).
        limit: what all weights together may be.
    """

    def __init__(self, load: Callable[[K], tuple[T, int]], limit: int) -> None:
        self._load, self._limit = load, limit
        self._known: OrderedDict[K, tuple[T, int]] = OrderedDict()
        self._weight = 0

    def get(self, key: K) -> T:
        if key in self._known:
            self._known.move_to_end(key)
            return self._known[key][0]
        value, weight = self._load(key)
        self._known[key] = (value, weight)
        self._weight += weight
        while self._weight > self._limit and len(self._known) > 1:
            _, (_, freed) = self._known.popitem(last=False)
            self._weight -= freed
        return value

    def forget(self, key: K) -> None:
        """Load it again on the next use."""
        _, weight = self._known.pop(key, (None, 0))
        self._weight -= weight
