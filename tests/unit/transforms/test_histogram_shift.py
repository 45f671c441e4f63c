"""Shifts of the histogram: what stays, and what has no range."""

from __future__ import annotations

import numpy as np
import pytest

from detaug.transforms import HistogramShift
from tests.support.transforms.generators import generator, noise


def test_least_and_largest_value_stay():
    image = noise((1, 20, 20))
    result = HistogramShift(5)(image=image, rng=generator())["image"]
    assert result.min() == image.min()
    assert result.max() == pytest.approx(image.max(), rel=1e-6)
    assert not np.array_equal(result, image)


@pytest.mark.parametrize(("shape", "value"), [((2, 4, 5), 1), ((1, 4, 5), np.nan)])
def test_what_has_no_range_stays_the_same_object(shape, value):
    image = np.full(shape, value, np.float32)
    assert HistogramShift()(image=image, rng=generator())["image"] is image


def test_a_channel_without_a_range_stays_beside_one_that_has_one():
    constant = np.ones((4, 5), np.float32)
    image = np.stack([constant, noise((4, 5))])
    transform = HistogramShift(4, synchronize_channels=False)
    first, second = transform(image=image, rng=generator())["image"]
    np.testing.assert_array_equal(first, constant)
    assert not np.array_equal(second, image[1])


def test_not_a_number_stays_and_others_do_not_notice():
    image = noise((1, 8, 8))
    image[0, 0, 0] = 0
    expected = HistogramShift()(image=image, rng=generator())["image"]
    image[0, 0, 0] = np.nan
    result = HistogramShift()(image=image, rng=generator())["image"]
    assert np.isnan(result[0, 0, 0])
    np.testing.assert_array_equal(result.ravel()[1:], expected.ravel()[1:])
    image[0, 0, 0] = np.inf
    assert np.isnan(HistogramShift()(image=image, rng=generator())["image"]).all()
