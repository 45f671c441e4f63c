"""Moments and order statistics of float32 arrays, against NumPy in float64."""

from __future__ import annotations

import numpy as np
import pytest

from detaug.kernels.statistics import moments, order_statistics

SIZES = (1, 2, 3, 255, 256, 257, 1000, 70_001)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("scale", "offset"), [(1, 0), (1e-3, 1000), (1e20, -1e19), (1e-30, 0)])
def test_moments(size, scale, offset):
    values = (np.random.default_rng(size).normal(size=size) * scale + offset).astype(np.float32)
    low, high, average, deviation = moments(values)
    wide = values.astype(np.float64)
    assert (low, high) == (wide.min(), wide.max())
    assert abs(average - wide.mean()) <= 1e-12 * np.abs(wide).max()
    np.testing.assert_allclose(
        deviation, wide.std(ddof=1) if size > 1 else 0, rtol=1e-9, atol=1e-13 * np.abs(wide).max()
    )


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, 5, 999])
def test_the_mean_is_not_finite_where_a_value_is_not(bad, place):
    values = np.ones(1000, np.float32)
    values[place] = bad
    assert not np.isfinite(moments(values)[2])


@pytest.mark.parametrize("size", SIZES)
def test_order_statistics_are_those_of_a_sorted_array(size):
    rng = np.random.default_rng(size)
    for values in (
        rng.normal(size=size),
        rng.integers(-3, 4, size) * 0.5,
        rng.choice([0.0, -0.0, 1e-45, -1e-45, np.inf, -np.inf, 3e38], size),
        rng.integers(0, 2**32, size, dtype=np.uint32).view(np.float32),
    ):
        given = np.where(np.isnan(values), 0, values).astype(np.float32)
        ranks = np.unique([0, size // 3, size // 2, max(size - 2, 0), size - 1])
        found = np.empty(len(ranks), np.float32)
        order_statistics(given, ranks, found)
        np.testing.assert_array_equal(found, np.sort(given)[ranks])
        assert not np.signbit(found[found == 0]).any()


def test_with_a_nan_every_order_statistic_is_nan():
    for nan in (0x7FC00000, 0xFFC00000):
        values = np.array([1, 2, 3], np.float32)
        values.view(np.uint32)[1] = nan
        found = np.empty(2, np.float32)
        order_statistics(values, np.array([0, 1]), found)
        assert np.isnan(found).all()
