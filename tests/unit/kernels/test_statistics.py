"""Moments of float32 arrays, against NumPy in float64."""

from __future__ import annotations

import numpy as np
import pytest

from detaug.kernels.statistics import moments

SIZES = (1, 2, 3, 255, 256, 257, 1000, 70_001)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("scale", "offset"), [(1, 0), (1e-3, 1000), (1e20, -1e19), (1e-30, 0)])
def test_moments(size, scale, offset):
    values = (np.random.default_rng(size).normal(size=size) * scale + offset).astype(np.float32)
    low, high, average, deviation = moments(values)
    wide = values.astype(np.float64)
    largest = np.abs(wide).max()
    assert low == wide.min()
    assert high == wide.max()
    assert abs(average - wide.mean()) <= 1e-12 * largest
    expected = wide.std(ddof=1) if size > 1 else 0
    np.testing.assert_allclose(deviation, expected, rtol=1e-9, atol=1e-13 * largest)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("index", [0, 5, 999])
def test_the_mean_is_not_finite_where_a_value_is_not(bad, index):
    values = np.ones(1000, np.float32)
    values[index] = bad
    assert not np.isfinite(moments(values)[2])
