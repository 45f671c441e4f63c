"""Regions of an image filled with random numbers, or with their own voxels in another order."""

from __future__ import annotations

from typing import Any

import numpy as np

from detaug.kernels.compiling import kernel
from detaug.kernels.threefry import PIECE, fill_piece_of_words

_STEP = np.float32(2.0**-24)


@kernel("void(float32[::1], float32, float32, uint32, uint32, uint32)")
def fill_evenly(values: Any, low: Any, extent: Any, key_low: Any, key_high: Any, stream: Any) -> None:
    """``low + extent * u`` with an even u of 0 <= u < 1 in place of each value.

    Values in order get the upper 24 bits of the words of a stream, in the order of `fill_piece_of_words`.
    """
    words = np.empty(PIECE, np.uint32)
    for begin in range(0, values.shape[0], PIECE):
        fill_piece_of_words(words, begin // PIECE, stream, key_low, key_high)
        part = values[begin : begin + PIECE]
        for k in range(part.shape[0]):
            part[k] = low + extent * (np.float32(np.int32(words[k] >> np.uint32(8))) * _STEP)


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
