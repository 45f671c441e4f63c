"""A permutation of any length in which each place is computed by itself: no time and no memory before the first item."""

from __future__ import annotations

from typing import Any

import numpy as np

#: Of four the result looks random to anyone who may ask for some of its places (Luby and Rackoff, 1988).
ROUNDS = 8

Words = np.ndarray[Any, np.dtype[np.uint64]]


class Feistel:
    """A permutation of 0 ... length-1: a Feistel network over the next power of four.

    A place whose item is `length` or more walks on through the network until it meets one that is less. It begins inside, so
    that it returns there, and less than four steps are needed on average.

    Args:
        length: 1 ... 2**62.
        child: its rounds' keys are raw 64-bit draws of it (NEP 19).
    """

    def __init__(self, length: int, child: np.random.SeedSequence) -> None:
        self._length = np.uint64(length)
        half = max(1, -(-(length - 1).bit_length() // 2))
        self._half, self._mask = np.uint64(half), np.uint64((1 << half) - 1)
        self._keys = np.random.PCG64DXSM(child).random_raw(ROUNDS)

    def __call__(self, places: np.ndarray[Any, np.dtype[np.int64]]) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The items at these places, int64, of the same shape."""
        items = self._through(places.astype(np.uint64))
        while (outside := items >= self._length).any():
            items[outside] = self._through(items[outside])
        return items.astype(np.int64)

    def _through(self, words: Words) -> Words:
        left, right = words >> self._half, words & self._mask
        for key in self._keys:
            left, right = right, left ^ (_mixed(right ^ key) & self._mask)
        return (left << self._half) | right


def _mixed(words: Words) -> Words:
    """SplitMix64's finaliser (Stafford's variant 13): each bit of a word depends on all of its bits."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))
