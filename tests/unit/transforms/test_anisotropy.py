"""Thick slices: where they lie, what they see, and the interpolation between them, in float64."""

from __future__ import annotations

import math

import numpy as np
import pytest

from detaug.transforms import Anisotropy
from tests.support.transforms.generators import generator, noise

SHAPES = ((2, 9, 14, 11), (1, 33, 20), (2, 7, 1, 12), (1, 40, 600), (1, 2, 3))


def exactly(line, distance):
    """One line as slices that touch each other see it, in float64."""
    n = len(line)
    count = max(1, math.floor(n / distance))
    centres = [(n - 1) / 2 + (c - (count - 1) / 2) * distance for c in range(count)]
    # the mean of a function that is constant in each voxel, over the slice's thickness within the
    # image
    whole = np.concatenate([[0.0], np.cumsum(line.astype(np.float64))])
    edges = np.array(
        [(max(c - distance / 2, -0.5), min(c + distance / 2, n - 0.5)) for c in centres]
    )
    seen = np.diff(np.interp(edges, np.arange(n + 1) - 0.5, whole)).ravel() / np.diff(edges).ravel()
    return np.interp(np.arange(n), centres, seen)


@pytest.mark.parametrize("shape", SHAPES)
def test_thick_boxes_are_means_to_float32_rounding(shape):
    image = noise(shape)
    for seed in range(4):
        transform = Anisotropy(downsampling=(1.1, 6), profile="box", synchronize_channels=False)
        params = transform.sample(generator(seed), {"image": shape})
        result = transform.apply({"image": image}, params)["image"]
        for c, axis, distance in zip(*params.values(), strict=True):
            expected = np.apply_along_axis(exactly, axis, image[c].astype(np.float64), distance)
            np.testing.assert_allclose(result[c], expected, rtol=0, atol=1e-6)


def test_planes_that_lie_between_two_voxels_are_the_upper_one():
    line = np.arange(8, dtype=np.float32).reshape(1, 8, 1)
    result = Anisotropy((0,), 2)(image=line, rng=generator())["image"].ravel()
    np.testing.assert_array_equal(result, np.interp(range(8), [0.5, 2.5, 4.5, 6.5], [1, 3, 5, 7]))
