"""Threefry4x32-13 in plain NumPy, the reference for the compiled kernel.

It follows Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (2011).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

_ROTATIONS = ((10, 26), (11, 21), (13, 27), (23, 5), (6, 20), (17, 11), (25, 10), (18, 20))


def blocks(counters: np.ndarray, key: Sequence[int]) -> np.ndarray:
    """Return the random words (n, 4), uint32, of counters (n, 4) under a key of four words."""
    words = [np.uint32(word) for word in key]
    parity = np.uint32(0x1BD11BDA)
    for word in words:
        parity ^= word
    words.append(parity)
    x = [(counters[:, i] + words[i]).astype(np.uint32) for i in range(4)]
    for round_index in range(13):
        first_rotation, second_rotation = _ROTATIONS[round_index % 8]
        # Even rounds mix the pairs (0, 1) and (2, 3); odd rounds mix (0, 3) and (2, 1).
        first_partner = 1 if round_index % 2 == 0 else 3
        second_partner = 4 - first_partner
        _mix(x, 0, first_partner, first_rotation)
        _mix(x, 2, second_partner, second_rotation)
        if round_index % 4 == 3:
            injection = round_index // 4 + 1
            for i in range(4):
                x[i] = x[i] + words[(injection + i) % 5]
            x[3] = x[3] + np.uint32(injection)
    return np.stack(x, axis=1)


def _mix(x: list[np.ndarray], target: int, other: int, rotation: int) -> None:
    """Add word `other` to word `target`, then rotate `other` and xor it with the sum."""
    x[target] = x[target] + x[other]
    high = x[other] << np.uint32(rotation)
    low = x[other] >> np.uint32(32 - rotation)
    x[other] = (high | low) ^ x[target]


def random_words(count: int, key: int, stream: int) -> np.ndarray:
    """Return words 0 ... count - 1 of a stream under a 64-bit key, uint32."""
    num_blocks = -(-count // 4)
    counters = np.zeros((num_blocks, 4), np.uint32)
    counters[:, 0] = np.arange(num_blocks)
    counters[:, 1] = stream
    key_words = [key & 0xFFFFFFFF, key >> 32, 0, 0]
    return blocks(counters, key_words).reshape(-1)[:count]
