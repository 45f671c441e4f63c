"""Threefry4x32-13 in plain NumPy, as Salmon et al. describe it: what the compiled one is compared
with.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

_ROTATIONS = ((10, 26), (11, 21), (13, 27), (23, 5), (6, 20), (17, 11), (25, 10), (18, 20))


def blocks(counters: np.ndarray, key: Sequence[int]) -> np.ndarray:
    """(n, 4) uint32 for (n, 4) counters under four key words."""
    words = [np.uint32(word) for word in key]
    parity = np.uint32(0x1BD11BDA)
    for word in words:
        parity ^= word
    words.append(parity)
    x = [(counters[:, i] + words[i]).astype(np.uint32) for i in range(4)]
    for number in range(13):
        odd, even = (1, 3) if number % 2 == 0 else (3, 1)
        for into, other, turn in (
            (0, odd, _ROTATIONS[number % 8][0]),
            (2, even, _ROTATIONS[number % 8][1]),
        ):
            x[into] = x[into] + x[other]
            x[other] = (x[other] << np.uint32(turn) | x[other] >> np.uint32(32 - turn)) ^ x[into]
        if number % 4 == 3:
            injection = number // 4 + 1
            x = [x[i] + words[(injection + i) % 5] for i in range(4)]
            x[3] = x[3] + np.uint32(injection)
    return np.stack(x, axis=1)


def random_words(count: int, key: int, stream: int) -> np.ndarray:
    """Words 0 ... count - 1 of a stream under a 64-bit key."""
    counters = np.zeros((-(-count // 4), 4), np.uint32)
    counters[:, 0], counters[:, 1] = np.arange(len(counters)), stream
    return blocks(counters, [key & 0xFFFFFFFF, key >> 32, 0, 0]).reshape(-1)[:count]
