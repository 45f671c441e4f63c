"""Threefry4x32 against Random123's published answers, and its words as random numbers."""

from __future__ import annotations

import numba
import numpy as np
import pytest
from scipy import stats

from detaug.kernels.threefry import block, key_words, random_words, threefry4x32

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


def words(count, key=1, stream=0):
    out = np.empty(count, np.uint32)
    random_words(out, *key_words(key), np.uint32(stream))
    return out


def callable_from_python(function):
    """Inlined functions are for compiled code only: gives one of a (n, 8) uint32 array of counters and keys."""

    @numba.njit
    def compiled(given, out):
        for i in range(len(given)):
            g = given[i]
            out[i, 0], out[i, 1], out[i, 2], out[i, 3] = function(g[0], g[1], g[2], g[3], g[4], g[5], g[6], g[7])

    def blocks(given):
        out = np.empty((len(given), 4), np.uint32)
        compiled(np.array(given, np.uint32), out)
        return out.tolist()

    return blocks


blocks_of_13 = callable_from_python(block)


def as_words(text):
    return [int(word, 16) for word in text.split()]


@pytest.mark.parametrize("rounds", [13, 20])
def test_blocks_are_the_published_answers(rounds):
    blocks = blocks_of_13 if rounds == 13 else callable_from_python(threefry4x32(rounds))
    _, given, answers = zip(*(each for each in KNOWN_ANSWERS if each[0] == rounds), strict=True)
    assert blocks([as_words(text) for text in given]) == [as_words(text) for text in answers]


def test_word_0_of_stream_0_under_key_0_is_published_too():
    assert [f"{word:08x}" for word in words(4, key=0)] == ["531c7e4f", "39491ee5", "2c855a92", "3d6abf9a"]


def test_word_4i_plus_j_is_output_j_of_block_i_of_the_stream():
    key = 0x0123456789ABCDEF
    found = words(42, key, 7)
    low, high = key_words(key)
    blocks = blocks_of_13([(i, 7, 0, 0, low, high, 0, 0) for i in range(11)])
    made = [word for four in blocks for word in four]
    assert found.tolist() == made[:42]


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 5, 1023])
def test_short_fields_are_the_beginning_of_long_ones(count):
    assert words(count).tolist() == words(1024)[:count].tolist()


def test_words_are_even_and_every_bit_is_set_half_the_time():
    found = words(2**20)
    assert stats.kstest(found[: 2**17] / 2.0**32, "uniform").pvalue > 1e-3
    set_bits = ((found[:, None] >> np.arange(32, dtype=np.uint32)) & 1).mean(0)
    assert np.abs(set_bits - 0.5).max() < 4.5 * 0.5 / 2**10


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"key": 1}, {"key": 2}),
        ({"key": 1}, {"key": 1 + 2**32}),
        ({"stream": 0}, {"stream": 1}),
        ({"key": 0}, {"key": 2**63}),
    ],
)
def test_neighbouring_keys_and_streams_have_nothing_in_common(one, other):
    count = 2**17
    a, b = words(count, **one), words(count, **other)
    different_bits = np.unpackbits((a ^ b).view(np.uint8)).mean()
    assert abs(different_bits - 0.5) < 4.5 * 0.5 / np.sqrt(32 * count)
    assert abs(np.corrcoef(a.astype(float), b.astype(float))[0, 1]) < 4.5 / np.sqrt(count)
    assert not np.intersect1d(a[:1000], b[:1000]).size


@pytest.mark.parametrize("lag", [1, 2, 3, 4, 5, 128, 4096])
def test_neighbouring_counters_have_nothing_in_common(lag):
    found = words(2**17).astype(float)
    assert abs(np.corrcoef(found[:-lag], found[lag:])[0, 1]) < 4.5 / np.sqrt(len(found))
