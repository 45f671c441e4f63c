"""Window factors against the normal distribution, near its centre and far from it."""

import math

import numpy as np
import pytest

from detaug.kernels.windows import window_factors


def factors(n, location, scale):
    out = np.empty(n)
    window_factors(out, float(location), float(scale))
    return out


def exactly(n, location, scale):
    """Return the probabilities of n voxels relative to the largest one, in float64.

    Each is a difference of the smaller of the distribution's two tails, which is precise.
    """

    def tail(x):
        return 0.5 * math.erfc(x / math.sqrt(2.0))

    shares = []
    for i in range(n):
        lower = (i - 0.5 - location) / scale
        upper = (i + 0.5 - location) / scale
        if lower + upper > 0:
            shares.append(tail(lower) - tail(upper))
        else:
            shares.append(tail(-upper) - tail(-lower))
    return np.array(shares) / max(shares)


@pytest.mark.parametrize("location", [-60.0, -3.0, 0.0, 7.4, 15.5, 80.0])
@pytest.mark.parametrize("scale", [0.3, 1.0, 4.0, 15.0])
def test_factors_are_the_voxels_probabilities(location, scale):
    # Farther away float64's tails are zero.
    if location / scale < 25 and -location / scale < 5.5:
        expected = exactly(16, location, scale)
        np.testing.assert_allclose(factors(16, location, scale), expected, rtol=3e-12, atol=1e-300)


def test_a_wide_gaussian_keeps_its_small_differences():
    drops = 1.0 - factors(21, 10.0, 1e5)
    distances = np.arange(21) - 10.0
    np.testing.assert_allclose(drops, distances**2 / 2e10, rtol=1e-4, atol=3e-16)


@pytest.mark.parametrize("distance", [4.9, 5.1, 6.0, 7.0, 7.5, 8.0, 8.1, 8.2, 8.3, 9.0, 40.0, 1e5])
def test_above_the_centre_factors_saturate_as_differences_of_a_distribution_function(distance):
    norm = pytest.importorskip("scipy.stats").norm
    scale = 15.0
    location = -0.5 - distance * scale
    out = np.empty(24)
    largest = window_factors(out, location, scale)
    faces = np.arange(25) - 0.5
    expected = np.diff(norm.cdf(faces, location, scale))
    one_unit_below_1 = 1.2e-16
    np.testing.assert_allclose(out * largest, expected, rtol=1e-12, atol=one_unit_below_1)
    assert (largest == 0.0) == (distance >= 8.3)
    assert largest > 0.0 or not out.any()


@pytest.mark.parametrize(
    ("arguments", "expected"), [((5, 2.1, 1e-3), [0, 0, 1, 0, 0]), ((1, 40.0, 0.5), [1])]
)
def test_one_voxel_may_have_it_all(arguments, expected):
    np.testing.assert_array_equal(factors(*arguments), expected)
