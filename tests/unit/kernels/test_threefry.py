"""Threefry4x32 against Random123's published answers, and the fields of normals that are made of
its words.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.support import threefry as reference
from tests.support.transforms.generators import normals

ONES = "ffffffff " * 8
PI = "243f6a88 85a308d3 13198a2e 03707344 a4093822 299f31d0 082efa98 ec4e6c89"
# Random123's kat_vectors: counter and key, answer after 13 rounds
KNOWN_ANSWERS = [
    ("00000000 " * 8, "531c7e4f 39491ee5 2c855a92 3d6abf9a"),
    (ONES, "c4189358 1c9cc83a d5881c67 6a0a89e0"),
    (PI, "4aa71d8f 734738c2 431fc6a8 ae6debf1"),
]


def as_words(text):
    return np.array([int(word, 16) for word in text.split()], np.uint32)


@pytest.mark.parametrize(("given", "answer"), KNOWN_ANSWERS)
def test_reference_gives_the_published_answers(given, answer):
    counter, key = as_words(given).reshape(2, 4)
    assert reference.blocks(counter[None], key).tolist() == [as_words(answer).tolist()]


def test_they_are_box_and_mullers_transform_of_threefrys_words():
    count, key, stream = 1024 * 40, 0xFEDCBA9876543210, 3
    blocks = reference.random_words(count, key, stream).reshape(-1, 256, 4)
    expected = np.empty((len(blocks), 4, 256))
    for pair in (0, 2):
        a, b = blocks[..., pair].astype(np.float64), blocks[..., pair + 1]
        radius = np.sqrt(-2 * np.log((a + 0.5) / 2**32))
        angle = np.pi / 4 + (b << np.uint32(2)).view(np.int32) / 2.0**32 * np.pi / 2
        expected[:, pair] = radius * np.cos(angle) * np.where(b >> np.uint32(31), -1, 1)
        expected[:, pair + 1] = radius * np.sin(angle) * np.where((b >> np.uint32(30)) & 1, -1, 1)
    # words close to 2**32 have a float32 that is rounded; so far from zero, the radius is good to
    # 1e-6 otherwise
    large = (blocks[..., [0, 0, 2, 2]] < 0.999 * 2**32).transpose(0, 2, 1)
    found = normals(expected.shape, key, stream)
    assert np.abs(found - expected)[large].max() < 2e-6
    assert np.abs(found - expected).max() < 1e-3


@pytest.mark.parametrize("count", [1, 3, 255, 1023, 1024, 1025, 5000])
def test_small_fields_are_the_beginning_of_large_ones(count):
    assert normals((count,), 1).tobytes() == normals((6000,), 1)[:count].tobytes()
