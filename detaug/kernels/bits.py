"""Binary volumes with 64 voxels in a word: a row of n voxels takes ``words_for(n)`` words, voxel 0 is the lowest bit of
the first; bits beyond the row's end are 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from detaug.kernels.compiling import inlined, kernel

_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
_ONE = np.uint64(1)
_NONE = np.uint64(0)


def words_for(voxels: int) -> int:
    """How many words a row takes."""
    return (voxels + 63) // 64


@inlined
def used_bits(voxels: Any, word: Any) -> Any:
    """The bits of a row's word that stand for voxels."""
    rest = voxels - 64 * word
    return _ALL if rest >= 64 else np.uint64((_ONE << np.uint64(rest)) - _ONE)


@kernel("boolean(float32[::1], int64, uint64[:, ::1])")
def pack(values: Any, voxels: Any, bits: Any) -> Any:
    """Set the bits of voxels that are not 0 (NaN is not) in rows of that many voxels.

    Returns whether every value is 0 or 1.
    """
    strange = 0
    for row in range(bits.shape[0]):
        for word in range(bits.shape[1]):
            first = row * voxels + 64 * word
            block = values[first : first + min(64, voxels - 64 * word)]
            found = _NONE
            for i in range(block.shape[0]):
                value = block[i]
                strange += (value != np.float32(0)) & (value != np.float32(1))
                found |= np.uint64(value != np.float32(0)) << np.uint64(i)
            bits[row, word] = found
    return strange == 0


@kernel("void(uint64[:, ::1], int64, float32[::1])")
def unpack(bits: Any, voxels: Any, values: Any) -> None:
    """1.0 where the bit is set, else 0.0."""
    for row in range(bits.shape[0]):
        for word in range(bits.shape[1]):
            first = row * voxels + 64 * word
            block = values[first : first + min(64, voxels - 64 * word)]
            found = bits[row, word]
            for i in range(block.shape[0]):
                block[i] = np.float32(np.int32((found >> np.uint64(i)) & _ONE))


@kernel("void(uint64[:, ::1], int64, float32, float32[::1])")
def set_where(bits: Any, voxels: Any, value: Any, values: Any) -> None:
    """Give the voxels whose bit is set a value, and leave the others."""
    for row in range(bits.shape[0]):
        for word in range(bits.shape[1]):
            found = bits[row, word]
            if found == _NONE:
                continue
            first = row * voxels + 64 * word
            for i in range(min(64, voxels - 64 * word)):
                if (found >> np.uint64(i)) & _ONE:
                    values[first + i] = value


@kernel("void(uint64[:, ::1], int64)")
def invert(bits: Any, voxels: Any) -> None:
    """Every voxel's complement, in place."""
    for row in range(bits.shape[0]):
        for word in range(bits.shape[1]):
            bits[row, word] = np.uint64(~bits[row, word]) & used_bits(voxels, word)
