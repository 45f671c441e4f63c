"""Regions of an image filled with one number, with random numbers, or with their own voxels in another order."""

from __future__ import annotations

from typing import Any

import numpy as np

from detaug.kernels.compiling import kernel
from detaug.kernels.threefry import PIECE, fill_piece_of_words

_STEP = np.float32(2.0**-24)


_CORNERS = ", ".join(["int64"] * 6)  # lower ones, and upper ones, excluded: what lies outside of the volume is left out


@kernel(f"void(float32[:,:,::1], {_CORNERS}, float32)")
def fill(volume: Any, i0: Any, j0: Any, k0: Any, i1: Any, j1: Any, k1: Any, value: Any) -> None:
    """The value for each voxel of a region."""
    for i in range(max(i0, 0), min(i1, volume.shape[0])):
        for j in range(max(j0, 0), min(j1, volume.shape[1])):
            line = volume[i, j, max(k0, 0) : max(k1, 0)]
            for k in range(line.shape[0]):
                line[k] = value


@kernel(f"void(float32[:,:,::1], {_CORNERS}, float32, float32, uint32, uint32, uint32)")
def fill_evenly(
    volume: Any,
    i0: Any,
    j0: Any,
    k0: Any,
    i1: Any,
    j1: Any,
    k1: Any,
    low: Any,
    extent: Any,
    key_low: Any,
    key_high: Any,
    stream: Any,
) -> None:
    """``low + extent * u`` with an even u of 0 <= u < 1 for each voxel of a region.

    Voxels in order get the upper 24 bits of the words of a stream, in the order of `fill_piece_of_words`.
    """
    words = np.empty(PIECE, np.uint32)
    piece, used = 0, PIECE
    for i in range(max(i0, 0), min(i1, volume.shape[0])):
        for j in range(max(j0, 0), min(j1, volume.shape[1])):
            line = volume[i, j, max(k0, 0) : max(k1, 0)]
            begin = 0
            while begin < line.shape[0]:
                if used == PIECE:
                    fill_piece_of_words(words, piece, stream, key_low, key_high)
                    piece, used = piece + 1, 0
                part = line[begin : begin + PIECE - used]
                given = words[used : used + part.shape[0]]
                for k in range(part.shape[0]):
                    part[k] = low + extent * (np.float32(np.int32(given[k] >> np.uint32(8))) * _STEP)
                begin += part.shape[0]
                used += part.shape[0]


@kernel("void(float32[::1], uint32, uint32, uint32)")
def shuffle(values: Any, key_low: Any, key_high: Any, stream: Any) -> None:
    """Fisher and Yates's shuffle, in place.

    From the last value to the second, each is exchanged with the one at ``word * count >> 32`` among the first ``count``, up
    to itself; no place's probability differs from the others' by more than count / 2^32 of it. Words are those of a stream,
    in the order of `fill_piece_of_words`.
    """
    words = np.empty(PIECE, np.uint32)
    for done in range(values.shape[0] - 1):
        at = done % PIECE
        if at == 0:
            fill_piece_of_words(words, done // PIECE, stream, key_low, key_high)
        count = np.uint64(values.shape[0] - done)
        other = np.uint64(np.uint64(np.uint64(words[at]) * count) >> np.uint64(32))
        last = np.uint64(count - np.uint64(1))
        value = values[last]
        values[last] = values[other]
        values[other] = value
