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
    """Differences of the distribution's tail that is the smaller one, relative to the largest."""

    def tail(x):
        return 0.5 * math.erfc(x / math.sqrt(2.0))

    found = []
    for i in range(n):
        a, b = (i - 0.5 - location) / scale, (i + 0.5 - location) / scale
        found.append(tail(a) - tail(b) if a + b > 0 else tail(-b) - tail(-a))
    return np.array(found) / max(found)


@pytest.mark.parametrize("location", [-60.0, -3.0, 0.0, 7.4, 15.5, 80.0])
@pytest.mark.parametrize("scale", [0.3, 1.0, 4.0, 15.0])
def test_factors_are_the_voxels_probabilities(location, scale):
    if location / scale < 25 and -location / scale < 5.5:  # beyond, float64's tails vanish
        np.testing.assert_allclose(
            factors(16, location, scale), exactly(16, location, scale), rtol=3e-12, atol=1e-300
        )


def test_a_wide_gaussian_keeps_its_small_differences():
    found = factors(21, 10.0, 1e5)
    i = np.arange(21)
    np.testing.assert_allclose(1.0 - found, (i - 10.0) ** 2 / 2e10, rtol=1e-4, atol=3e-16)


@pytest.mark.parametrize("distance", [4.9, 5.1, 6.0, 7.0, 7.5, 8.0, 8.1, 8.2, 8.3, 9.0, 40.0, 1e5])
def test_above_the_centre_factors_saturate_as_differences_of_a_distribution_function(distance):
    norm = pytest.importorskip("scipy.stats").norm
    n, scale = 24, 15.0
    out = np.empty(n)
    largest = window_factors(out, -0.5 - distance * scale, scale)
    expected = np.diff(norm.cdf(np.arange(n + 1) - 0.5, -0.5 - distance * scale, scale))
    np.testing.assert_allclose(
        out * largest, expected, rtol=1e-12, atol=1.2e-16
    )  # one unit of a number below 1
    assert (largest == 0.0) == (distance >= 8.3)
    assert largest > 0.0 or not out.any()


@pytest.mark.parametrize(
    ("arguments", "expected"), [((5, 2.1, 1e-3), [0, 0, 1, 0, 0]), ((1, 40.0, 0.5), [1])]
)
def test_one_voxel_may_have_it_all(arguments, expected):
    np.testing.assert_array_equal(factors(*arguments), expected)
