"""Coarse dropout: where regions lie, what is in them, and what stays."""

from __future__ import annotations

import numpy as np
import pytest

from detaug.transforms import CoarseDropout
from tests.support.threefry import random_words
from tests.support.transforms.generators import generator, noise

SHAPES = ((2, 9, 14, 11), (1, 33, 20), (2, 7, 1, 12))


def box(c, corners):
    """A region of channel c, as an index."""
    return (c, *map(slice, *corners))


def words(key, stream, count):
    """The first words of a stream in the order in which regions take them."""
    made = random_words(-(-count // 1024) * 1024, key, stream)
    return made.reshape(-1, 256, 4).transpose(0, 2, 1).reshape(-1)[:count]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("fill", [(-3.0, 2.0), None])
@pytest.mark.parametrize("dropout_holes", [True, False])
def test_voxels_are_the_formula_of_their_words(shape, fill, dropout_holes):
    image = noise(shape)
    transform = CoarseDropout(3, 5, dropout_holes, fill, max_spatial_size=9)
    params = transform.sample(generator(2), {"image": shape})
    result = transform.apply({"image": image}, params)["image"]
    low, high = fill or (image.min(), image.max())
    whole = [([0] * (len(shape) - 1), list(shape[1:]))]
    expected = image.astype(np.float64)
    filled = params["holes"] if dropout_holes else whole
    for c in range(shape[0]):
        for h, corners in enumerate(filled):
            region = expected[box(c, corners)]
            even = (words(params["key"], c * len(filled) + h, region.size) >> 8) * 2.0**-24
            region[...] = (low + (high - low) * even).reshape(region.shape)
        for corners in () if dropout_holes else params["holes"]:
            expected[box(c, corners)] = image[box(c, corners)]
    np.testing.assert_allclose(result, expected, rtol=0, atol=5e-7)


def test_sizes_are_cut_to_the_image():
    assert CoarseDropout(1, (20, -1)).sample(generator(), {"image": (1, 6, 5)})["holes"] == [
        ([0, 0], [6, 5])
    ]


def test_a_number_draws_no_key():
    assert set(CoarseDropout(1, 2, fill_value=0).sample(generator(), {"image": (1, 6, 5)})) == {
        "holes"
    }
