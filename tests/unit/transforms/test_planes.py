"""Volumes as stacks of planes and back."""

import numpy as np

from detaug.transforms.planes import Convert2DTo3D, Convert3DTo2D
from tests.support.transforms.generators import noise, rng
from tests.support.transforms.golden import sample


def test_there_and_back_copies_nothing():
    arrays = {**sample(1, (4, 5, 6)), "regression_target": noise((3, 4, 5, 6))}
    planes = Convert3DTo2D()(**arrays, rng=rng())
    result = Convert2DTo3D()(**planes, rng=rng())
    assert result.keys() == arrays.keys()
    for key, value in arrays.items():
        np.testing.assert_array_equal(result[key], value)
        assert np.shares_memory(result[key], value)
