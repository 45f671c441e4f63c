"""Threefry4x32 against Random123's published answers, and the normals made of its words."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support import threefry as reference
from tests.support.transforms.generators import normals

ONES = "ffffffff " * 8
PI = "243f6a88 85a308d3 13198a2e 03707344 a4093822 299f31d0 082efa98 ec4e6c89"
#: Pairs of (counter and key, answer after 13 rounds), from Random123's kat_vectors.
KNOWN_ANSWERS = [
    ("00000000 " * 8, "531c7e4f 39491ee5 2c855a92 3d6abf9a"),
    (ONES, "c4189358 1c9cc83a d5881c67 6a0a89e0"),
    (PI, "4aa71d8f 734738c2 431fc6a8 ae6debf1"),
]


def as_words(text):
    return np.array([int(word, 16) for word in text.split()], np.uint32)


@pytest.mark.parametrize(("counter_and_key", "answer"), KNOWN_ANSWERS)
def test_reference_gives_the_published_answers(counter_and_key, answer):
    counter, key = as_words(counter_and_key).reshape(2, 4)
    (words,) = reference.blocks(counter[None], key)
    np.testing.assert_array_equal(words, as_words(answer))


KEY = 0xFEDCBA9876543210


def signs(words, bit):
    """Return -1 where a bit of a word is set, else 1."""
    return np.where((words >> np.uint32(bit)) & 1, -1, 1)


def box_and_mullers(of_radius, of_angle):
    """Return the two normals that Box and Muller's transform gives for each pair of words."""
    uniform = (of_radius.astype(np.float64) + 0.5) / 2**32
    radius = np.sqrt(-2 * np.log(uniform))
    fraction = (of_angle << np.uint32(2)).view(np.int32) / 2.0**32
    angle = np.pi / 4 + fraction * np.pi / 2
    first = radius * np.cos(angle) * signs(of_angle, 31)
    second = radius * np.sin(angle) * signs(of_angle, 30)
    return first, second


def test_they_are_box_and_mullers_transform_of_threefrys_words():
    stream = 3
    blocks = reference.random_words(1024 * 40, KEY, stream).reshape(-1, 256, 4)
    a, b, c, d = np.moveaxis(blocks, 2, 0)
    expected = np.stack([*box_and_mullers(a, b), *box_and_mullers(c, d)], axis=1)
    result = normals(expected.shape, KEY, stream)
    error = np.abs(result - expected)
    # A word close to 2**32 gives a radius close to zero, and its rounding to float32 then has a
    # large effect. For all other words the radius is exact to 1e-6.
    is_precise = np.stack([a, a, c, c], axis=1) < 0.999 * 2**32
    assert error[is_precise].max() < 2e-6
    assert error.max() < 1e-3


@pytest.mark.parametrize("count", [1, 3, 255, 1023, 1024, 1025, 5000])
def test_small_fields_are_the_beginning_of_large_ones(count):
    assert normals((count,), 1).tobytes() == normals((6000,), 1)[:count].tobytes()
