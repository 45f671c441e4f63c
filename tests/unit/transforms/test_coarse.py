"""Coarse dropout: where regions lie, what is in them, and what stays."""

from __future__ import annotations

import numpy as np
import pytest

from detaug.transforms import CoarseDropout
from tests.support.threefry import random_words
from tests.support.transforms.generators import generator, noise

SHAPES = ((2, 9, 14, 11), (1, 33, 20), (2, 7, 1, 12))


def box(c, corners):
    """Return a region of channel c as an index."""
    lower, upper = corners
    return (c, *map(slice, lower, upper))


def even_numbers(key, stream, size):
    """Return the first numbers of a stream, from 0 to 1, in the order in which regions take them."""
    num_words = -(-size // 1024) * 1024
    words = random_words(num_words, key, stream).reshape(-1, 256, 4)
    in_order = words.transpose(0, 2, 1).reshape(-1)[:size]
    return (in_order >> 8) * 2.0**-24


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("fill", [(-3.0, 2.0), None])
@pytest.mark.parametrize("dropout_holes", [True, False])
def test_voxels_are_the_formula_of_their_words(shape, fill, dropout_holes):
    image = noise(shape)
    transform = CoarseDropout(3, 5, dropout_holes, fill, max_spatial_size=9)
    params = transform.sample(generator(2), {"image": shape})
    result = transform.apply({"image": image}, params)["image"]
    low, high = fill or (image.min(), image.max())
    num_channels, *space = shape
    holes = params["holes"]
    filled = holes
    kept = []
    if not dropout_holes:
        filled = [([0] * len(space), space)]
        kept = holes
    expected = image.astype(np.float64)
    for c in range(num_channels):
        for number, corners in enumerate(filled):
            region = expected[box(c, corners)]
            even = even_numbers(params["key"], c * len(filled) + number, region.size)
            region[...] = (low + (high - low) * even).reshape(region.shape)
        for corners in kept:
            expected[box(c, corners)] = image[box(c, corners)]
    np.testing.assert_allclose(result, expected, rtol=0, atol=5e-7)


def test_sizes_are_cut_to_the_image():
    params = CoarseDropout(1, (20, -1)).sample(generator(), {"image": (1, 6, 5)})
    assert params["holes"] == [([0, 0], [6, 5])]


def test_a_number_draws_no_key():
    params = CoarseDropout(1, 2, fill_value=0).sample(generator(), {"image": (1, 6, 5)})
    assert set(params) == {"holes"}
