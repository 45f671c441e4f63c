"""Threefry4x32-13: the bulk generator behind noise fields.

It is keyed by one draw from a sample's Generator.

The construction is Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC
2011), with the rotation constants and the key schedule of their Random123 library. They report that
12 rounds already pass all of TestU01's BigCrush; 13 is the variant whose known answers Random123
publishes. Only 32-bit additions, rotations and exclusive-ors are used, so every CPU computes the
same words.

Word ``4 i + j`` of stream ``s`` under the 64-bit key ``k`` is output ``j`` of the block with
counter ``(i, s, 0, 0)`` and key ``(low 32 bits of k, high 32 bits of k, 0, 0)``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from detaug.kernels.compiling import inlined

_PARITY = np.uint32(0x1BD11BDA)

# Users of words take this number of them at a time, in four parts.
PIECE = 1024
QUARTER = PIECE // 4
# Read rather than counted: a loop's 64-bit counter would take vectors of twice the size.
LANES = np.arange(QUARTER, dtype=np.uint32)


def _turner(count: int) -> Any:
    """Return a function that rotates a word to the left by some bits.

    The number of bits is a constant when it is compiled: otherwise there are no vectors.
    """
    left = np.uint32(count)
    right = np.uint32(32 - count)

    def turn(word: Any) -> Any:
        return np.uint32(np.uint32(word << left) | np.uint32(word >> right))

    return inlined(turn)


(
    _turn5,
    _turn6,
    _turn10,
    _turn11,
    _turn13,
    _turn17,
    _turn18,
    _turn20,
    _turn21,
    _turn23,
    _turn25,
    _turn26,
    _turn27,
) = map(_turner, (5, 6, 10, 11, 13, 17, 18, 20, 21, 23, 25, 26, 27))


@inlined
def _four_rounds(x0: Any, x1: Any, x2: Any, x3: Any) -> Any:
    """Return four words after rounds 1 to 4, whose rotations rounds 9 to 12 have as well."""
    x0 = np.uint32(x0 + x1)
    x2 = np.uint32(x2 + x3)
    x1 = _turn10(x1) ^ x0
    x3 = _turn26(x3) ^ x2
    x0 = np.uint32(x0 + x3)
    x2 = np.uint32(x2 + x1)
    x3 = _turn11(x3) ^ x0
    x1 = _turn21(x1) ^ x2
    x0 = np.uint32(x0 + x1)
    x2 = np.uint32(x2 + x3)
    x1 = _turn13(x1) ^ x0
    x3 = _turn27(x3) ^ x2
    x0 = np.uint32(x0 + x3)
    x2 = np.uint32(x2 + x1)
    x3 = _turn23(x3) ^ x0
    x1 = _turn5(x1) ^ x2
    return x0, x1, x2, x3


@inlined
def block(x0: Any, x1: Any, x2: Any, x3: Any, k0: Any, k1: Any, k2: Any, k3: Any) -> Any:
    """Return four words from four counter words and four key words, all uint32.

    A round adds, rotates and exclusive-ors; after every fourth round key words are added, and the
    number of such additions so far. The 13 rounds are written out: a loop over them would keep the
    compiler from using vectors.
    """
    # The parity word: the extended key is never all zeros.
    k4 = np.uint32(_PARITY ^ k0 ^ k1 ^ k2 ^ k3)
    x0 = np.uint32(x0 + k0)
    x1 = np.uint32(x1 + k1)
    x2 = np.uint32(x2 + k2)
    x3 = np.uint32(x3 + k3)
    x0, x1, x2, x3 = _four_rounds(x0, x1, x2, x3)
    # Key words 1 to 4, and the number of this addition.
    x0 = np.uint32(x0 + k1)
    x1 = np.uint32(x1 + k2)
    x2 = np.uint32(x2 + k3)
    x3 = np.uint32(np.uint32(x3 + k4) + np.uint32(1))
    # Rounds 5 to 8.
    x0 = np.uint32(x0 + x1)
    x2 = np.uint32(x2 + x3)
    x1 = _turn6(x1) ^ x0
    x3 = _turn20(x3) ^ x2
    x0 = np.uint32(x0 + x3)
    x2 = np.uint32(x2 + x1)
    x3 = _turn17(x3) ^ x0
    x1 = _turn11(x1) ^ x2
    x0 = np.uint32(x0 + x1)
    x2 = np.uint32(x2 + x3)
    x1 = _turn25(x1) ^ x0
    x3 = _turn10(x3) ^ x2
    x0 = np.uint32(x0 + x3)
    x2 = np.uint32(x2 + x1)
    x3 = _turn18(x3) ^ x0
    x1 = _turn20(x1) ^ x2
    # Key words 2 to 4 and 0.
    x0 = np.uint32(x0 + k2)
    x1 = np.uint32(x1 + k3)
    x2 = np.uint32(x2 + k4)
    x3 = np.uint32(np.uint32(x3 + k0) + np.uint32(2))
    # Rounds 9 to 12.
    x0, x1, x2, x3 = _four_rounds(x0, x1, x2, x3)
    # Key words 3, 4, 0 and 1.
    x0 = np.uint32(x0 + k3)
    x1 = np.uint32(x1 + k4)
    x2 = np.uint32(x2 + k0)
    x3 = np.uint32(np.uint32(x3 + k1) + np.uint32(3))
    # Round 13.
    x0 = np.uint32(x0 + x1)
    x2 = np.uint32(x2 + x3)
    x1 = _turn6(x1) ^ x0
    x3 = _turn20(x3) ^ x2
    return x0, x1, x2, x3


def key_words(key: int) -> tuple[np.uint32, np.uint32]:
    """Return a 64-bit key as (low, high) words."""
    return np.uint32(key & 0xFFFFFFFF), np.uint32(key >> 32)
