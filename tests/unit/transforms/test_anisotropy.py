"""Thick slices and the interpolation between them, against the formula in float64."""

from __future__ import annotations

import math

import numpy as np
import pytest

from detaug.transforms import Anisotropy
from tests.support.transforms.generators import generator, noise

SHAPES = ((2, 9, 14, 11), (1, 33, 20), (2, 7, 1, 12), (1, 40, 600), (1, 2, 3))


def exactly(line, distance):
    """Return a line of voxels after an acquisition in adjacent thick slices, in float64.

    Args:
        line: values along the axis.
        distance: between the slices, and their thickness, in voxels.
    """
    length = len(line)
    count = max(1, math.floor(length / distance))
    middle = (length - 1) / 2
    centres = middle + (np.arange(count) - (count - 1) / 2) * distance
    lower = np.maximum(centres - distance / 2, -0.5)
    upper = np.minimum(centres + distance / 2, length - 0.5)
    # A slice has the mean of the voxels that it covers: the difference of two integrals of a
    # function that is constant within each voxel.
    integrals = np.concatenate([[0.0], np.cumsum(line)])
    faces = np.arange(length + 1) - 0.5
    up_to_lower = np.interp(lower, faces, integrals)
    up_to_upper = np.interp(upper, faces, integrals)
    means = (up_to_upper - up_to_lower) / (upper - lower)
    return np.interp(np.arange(length), centres, means)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", range(4))
def test_thick_boxes_are_means_to_float32_rounding(shape, seed):
    image = noise(shape)
    transform = Anisotropy(downsampling=(1.1, 6), profile="box", synchronize_channels=False)
    params = transform.sample(generator(seed), {"image": shape})
    result = transform.apply({"image": image}, params)["image"]
    for c, axis, distance in zip(*params.values(), strict=True):
        channel = image[c].astype(np.float64)
        expected = np.apply_along_axis(exactly, axis, channel, distance)
        np.testing.assert_allclose(result[c], expected, rtol=0, atol=1e-6)


def test_planes_that_lie_between_two_voxels_are_the_upper_one():
    line = np.arange(8, dtype=np.float32).reshape(1, 8, 1)
    result = Anisotropy((0,), 2)(image=line, rng=generator())["image"].ravel()
    np.testing.assert_array_equal(result, np.interp(range(8), [0.5, 2.5, 4.5, 6.5], [1, 3, 5, 7]))
