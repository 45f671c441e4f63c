"""Binary volumes: dilation.

The footprint of a dilation has rows along the last axis that are runs of voxels, each within the next wider one: balls and
disks. A volume is (n0, n1, words) of bits, 64 voxels in a word: voxel 0 of a row is the lowest bit of its first word. The rows of
the volume are dilated along themselves by one run after another, from the narrowest, and after each they are joined to the
result wherever the footprint has such a row: one operation for 64 voxels and one row of the footprint.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from detaug.kernels.compiling import inlined, kernel

_NONE = np.uint64(0)


def packed(mask: np.ndarray) -> np.ndarray:
    """(..., voxels) bool as (..., words) uint64."""
    found = np.packbits(mask, axis=-1, bitorder="little")
    whole = np.zeros((*mask.shape[:-1], -(-mask.shape[-1] // 64) * 8), np.uint8)
    whole[..., : found.shape[-1]] = found
    return whole.view(np.uint64)


def unpacked(bits: np.ndarray, voxels: int) -> np.ndarray:
    """The way back, for rows of that many voxels."""
    return np.unpackbits(bits.view(np.uint8), axis=-1, count=voxels, bitorder="little").view(bool)


@inlined
def _add_shifted(row: Any, offset: Any, into: Any) -> None:
    """Set those voxels i for which voxel i + offset is set, nothing being set outside the row."""
    words = row.shape[0]
    skip = abs(offset) // 64
    shift = np.uint64(abs(offset) % 64)
    back = np.uint64(64) - shift
    for word in range(words - skip):
        if offset >= 0:
            value = row[word + skip] >> shift
            if shift != _NONE and word + skip + 1 < words:
                value |= row[word + skip + 1] << back
            into[word] |= value
        else:
            value = row[words - 1 - word - skip] << shift
            if shift != _NONE and words - 2 - word - skip >= 0:
                value |= row[words - 2 - word - skip] >> back
            into[words - 1 - word] |= value


@kernel(
    "void(uint64[:, :, ::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], uint64[:, :, ::1], "
    "uint64[:, :, ::1])"
)
def dilate(bits: Any, low: Any, high: Any, last: Any, row0: Any, row1: Any, spread: Any, result: Any) -> None:
    """Set every voxel of ``result`` for which the footprint, laid upon it, covers a voxel that is set in ``bits``.

    Bits beyond a row's end may be set as well.

    Args:
        bits: (n0, n1, words).
        low, high: run r covers offsets low[r] ... high[r] (included); each run holds the one before it.
        last: rows last[r - 1] ... last[r] - 1 of the footprint are run r.
        row0, row1: offsets of the footprint's rows along the first two axes.
        spread: (n0, n1, words) of scratch.
        result: (n0, n1, words), need not be set to anything before.
    """
    n0, n1, words = bits.shape
    spread[:] = _NONE
    result[:] = _NONE
    flat_spread = spread.reshape(n0, n1 * words)
    flat_result = result.reshape(n0, n1 * words)
    begin = 0
    for run in range(low.shape[0]):
        for i in range(n0):
            for j in range(n1):
                for offset in range(low[run], high[run] + 1):
                    if run == 0 or offset < low[run - 1] or offset > high[run - 1]:
                        _add_shifted(bits[i, j], offset, spread[i, j])
        for row in range(begin, last[run]):
            d0 = row0[row]
            d1 = row1[row]
            first = max(0, -d1) * words
            count = (n1 - abs(d1)) * words
            if count <= 0:
                continue
            source_first = first + d1 * words
            for i in range(max(0, -d0), min(n0, n0 - d0)):
                source = flat_spread[i + d0, source_first : source_first + count]
                into = flat_result[i, first : first + count]
                for k in range(count):
                    into[k] |= source[k]
        begin = last[run]
