"""Threefry4x32 against Random123's published answers."""

from __future__ import annotations

import numba
import numpy as np
import pytest

from detaug.kernels.threefry import PIECE, fill_piece_of_words, key_words
from tests.support import threefry as reference

ONES = "ffffffff " * 8
PI = "243f6a88 85a308d3 13198a2e 03707344 a4093822 299f31d0 082efa98 ec4e6c89"
# Random123's kat_vectors: rounds, counter and key, answer
KNOWN_ANSWERS = [
    (13, "00000000 " * 8, "531c7e4f 39491ee5 2c855a92 3d6abf9a"),
    (13, ONES, "c4189358 1c9cc83a d5881c67 6a0a89e0"),
    (13, PI, "4aa71d8f 734738c2 431fc6a8 ae6debf1"),
    (20, "00000000 " * 8, "9c6ca96a e17eae66 fc10ecd4 5256a7d8"),
    (20, ONES, "2a881696 57012287 f6c7446e a16a6732"),
    (20, PI, "59cd1dbb b8879579 86b5d00c ac8b6d84"),
]


def as_words(text):
    return np.array([int(word, 16) for word in text.split()], np.uint32)


@pytest.mark.parametrize(("rounds", "given", "answer"), KNOWN_ANSWERS)
def test_reference_gives_the_published_answers(rounds, given, answer):
    counter, key = as_words(given).reshape(2, 4)
    assert reference.blocks(counter[None], key, rounds).tolist() == [as_words(answer).tolist()]


def test_compiled_pieces_are_the_references_words():
    @numba.njit
    def compiled(out, piece, stream, low, high):
        fill_piece_of_words(out, piece, stream, low, high)

    key, made = 0xFEDCBA9876543210, np.empty(PIECE, np.uint32)
    expected = reference.random_words(3 * PIECE, key, 7).reshape(3, PIECE // 4, 4)
    for piece in range(3):
        compiled(made, piece, np.uint32(7), *key_words(key))
        np.testing.assert_array_equal(made, expected[piece].T.reshape(-1))
