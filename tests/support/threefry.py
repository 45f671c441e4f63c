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
        first_turn, second_turn = _ROTATIONS[number % 8]
        # Words 0 and 1 are mixed and words 2 and 3; every second time 0 and 3, and 2 and 1.
        first_partner = 1 if number % 2 == 0 else 3
        second_partner = 4 - first_partner
        _mix(x, 0, first_partner, first_turn)
        _mix(x, 2, second_partner, second_turn)
        if number % 4 == 3:
            injection = number // 4 + 1
            for i in range(4):
                x[i] = x[i] + words[(injection + i) % 5]
            x[3] = x[3] + np.uint32(injection)
    return np.stack(x, axis=1)


def _mix(x: list[np.ndarray], into: int, other: int, turn: int) -> None:
    """Add one word to another, and turn the bits of the former."""
    x[into] = x[into] + x[other]
    high = x[other] << np.uint32(turn)
    low = x[other] >> np.uint32(32 - turn)
    x[other] = (high | low) ^ x[into]


def random_words(count: int, key: int, stream: int) -> np.ndarray:
    """Words 0 ... count - 1 of a stream under a 64-bit key."""
    num_blocks = -(-count // 4)
    counters = np.zeros((num_blocks, 4), np.uint32)
    counters[:, 0] = np.arange(num_blocks)
    counters[:, 1] = stream
    key_words = [key & 0xFFFFFFFF, key >> 32, 0, 0]
    return blocks(counters, key_words).reshape(-1)[:count]
