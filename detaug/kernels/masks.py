"""Binary volumes: dilation.

The footprint of a dilation has rows along the last axis that are runs of voxels, each within the next wider one: balls and
disks. A volume is (n0, n1, words) of bits, 64 voxels in a word: voxel 0 of a row is the lowest bit of its first word. The rows of
the volume are dilated along themselves by one run after another, from the narrowest, and after each they are joined to the
result wherever the footprint has such a row: one operation for 64 voxels and one row of the footprint.
"""

from __future__ import annotations

import numpy as np


def packed(mask: np.ndarray) -> np.ndarray:
    """(..., voxels) bool as (..., words) uint64."""
    found = np.packbits(mask, axis=-1, bitorder="little")
    whole = np.zeros((*mask.shape[:-1], -(-mask.shape[-1] // 64) * 8), np.uint8)
    whole[..., : found.shape[-1]] = found
    return whole.view(np.uint64)


def unpacked(bits: np.ndarray, voxels: int) -> np.ndarray:
    """The way back, for rows of that many voxels."""
    return np.unpackbits(bits.view(np.uint8), axis=-1, count=voxels, bitorder="little").view(bool)


#: Runs of voxels along the last axis, from the shortest: its first and last offset, and the rows, by their offsets along the
#: first two axes, that are such runs. Each run holds the one before it.
Footprint = list[tuple[tuple[int, int], list[tuple[int, int]]]]


def dilated(bits: np.ndarray, footprint: Footprint) -> np.ndarray:
    """Every voxel for which the footprint, laid upon it, covers a voxel that is set in ``bits``.

    Bits beyond a row's end may be set as well.
    """
    n0, n1, _ = bits.shape
    spread, result = np.zeros_like(bits), np.zeros_like(bits)
    covered = range(0)
    for (first, last), rows in footprint:
        run = range(first, last + 1)
        for offset in run:
            if offset not in covered:
                _add_shifted(bits, offset, spread)
        covered = run
        for d0, d1 in rows:
            (i, from_i), (j, from_j) = _places(d0, n0), _places(d1, n1)
            result[i, j] |= spread[from_i, from_j]
    return result


def _places(offset: int, n: int) -> tuple[slice, slice]:
    """Of n places in a row those that have another one so far on, and these."""
    here = slice(max(0, -offset), max(0, n - max(0, offset)))
    return here, slice(max(0, offset), max(0, n + min(0, offset)))


def _add_shifted(bits: np.ndarray, offset: int, into: np.ndarray) -> None:
    """Set those voxels i of each row for which voxel i + offset is set, nothing being set outside the row."""
    skip, shift = divmod(abs(offset), 64)
    ahead, move, back = (1, np.right_shift, np.left_shift) if offset >= 0 else (-1, np.left_shift, np.right_shift)
    here, there = _places(ahead * skip, bits.shape[-1])
    into[..., here] |= move(bits[..., there], np.uint64(shift))
    if shift:
        here, there = _places(ahead * (skip + 1), bits.shape[-1])
        into[..., here] |= back(bits[..., there], np.uint64(64 - shift))
