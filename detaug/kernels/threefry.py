"""Threefry4x32-13: the bulk generator behind noise fields, keyed by one draw from a sample's Generator.

The construction is Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011), with the
rotation constants and the key schedule of their Random123 library. They report that 12 rounds already pass all of
TestU01's BigCrush; 13 is the variant whose known answers Random123 publishes. Only 32-bit additions, rotations and
exclusive-ors are used, so every CPU computes the same words.

Word ``4 i + j`` of stream ``s`` under the 64-bit key ``k`` is output ``j`` of the block with counter ``(i, s, 0, 0)``
and key ``(low 32 bits of k, high 32 bits of k, 0, 0)``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from detaug.kernels.compiling import inlined, kernel

ROUNDS = 13

_ROTATIONS = ((10, 26), (11, 21), (13, 27), (23, 5), (6, 20), (17, 11), (25, 10), (18, 20))
_PARITY = np.uint32(0x1BD11BDA)
_LOW = np.uint64(0xFFFFFFFF)

# what is made at a time by those who use words, in four parts
PIECE = 1024
QUARTER = PIECE // 4
LANES = np.arange(QUARTER, dtype=np.uint32)  # read rather than counted: 64-bit counters would take wider vectors


def _block_source(rounds: int) -> str:
    """The rounds written out one after another: a loop over them would keep the compiler from using vectors."""
    keys = ("k0", "k1", "k2", "k3", "parity")
    lines = ["def block(x0, x1, x2, x3, k0, k1, k2, k3):", "parity = u32(PARITY ^ k0 ^ k1 ^ k2 ^ k3)"]
    lines += [f"x{i} = u32(x{i} + k{i})" for i in range(4)]
    for number in range(rounds):
        odd, even = ("x1", "x3") if number % 2 == 0 else ("x3", "x1")
        for into, other, turn in (("x0", odd, _ROTATIONS[number % 8][0]), ("x2", even, _ROTATIONS[number % 8][1])):
            lines.append(f"{into} = u32({into} + {other})")
            lines.append(f"{other} = u32(u32({other} << u32({turn})) | u32({other} >> u32({32 - turn}))) ^ {into}")
        if number % 4 == 3:
            injection = number // 4 + 1
            lines += [f"x{i} = u32(x{i} + {keys[(injection + i) % 5]})" for i in range(4)]
            lines.append(f"x3 = u32(x3 + u32({injection}))")
    lines.append("return x0, x1, x2, x3")
    return "\n    ".join(lines)


def threefry4x32(rounds: int) -> Any:
    """Threefry4x32 of that many rounds as an inlined function of 4 counter words and 4 key words, all uint32."""
    names: dict[str, Any] = {"u32": np.uint32, "PARITY": _PARITY}
    exec(_block_source(rounds), names)
    return inlined(names["block"])


block = threefry4x32(ROUNDS)


def key_words(key: int) -> tuple[np.uint32, np.uint32]:
    """A 64-bit key as (low, high) words."""
    return np.uint32(key & 0xFFFFFFFF), np.uint32(key >> 32)


@inlined
def fill_piece_of_words(out: Any, piece: Any, stream: Any, key_low: Any, key_high: Any) -> None:
    """Fill 1024 words: number ``256 j + i`` is word ``4 (256 piece + i) + j`` of a stream."""
    zero = np.uint32(0)
    first = np.uint32(piece * QUARTER)
    for i in range(QUARTER):
        a, b, c, d = block(np.uint32(first + LANES[i]), stream, zero, zero, key_low, key_high, zero, zero)
        out[i], out[QUARTER + i] = a, b
        out[2 * QUARTER + i], out[3 * QUARTER + i] = c, d


@kernel("void(uint32[::1], uint32, uint32, uint32)")
def random_words(out: Any, key_low: Any, key_high: Any, stream: Any) -> None:
    """Fill ``out`` with words 0 ... n - 1 of a stream."""
    zero = np.uint32(0)
    for i in range(out.shape[0] // 4):
        a, b, c, d = block(np.uint32(i), stream, zero, zero, key_low, key_high, zero, zero)
        out[4 * i] = a
        out[4 * i + 1] = b
        out[4 * i + 2] = c
        out[4 * i + 3] = d
    rest = out.shape[0] % 4
    if rest:
        i = out.shape[0] // 4
        a, b, c, d = block(np.uint32(i), stream, zero, zero, key_low, key_high, zero, zero)
        out[4 * i] = a
        if rest > 1:
            out[4 * i + 1] = b
        if rest > 2:
            out[4 * i + 2] = c
