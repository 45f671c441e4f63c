"""Binary volumes with 64 voxels in a word: voxel 0 of a row is the lowest bit of its first word, and bits beyond the row's
end are 0.
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
