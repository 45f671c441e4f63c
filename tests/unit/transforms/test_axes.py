"""Mirroring, quarter turns and exchange of axes."""

from itertools import permutations, product

import numpy as np
import pytest

from detaug.transforms.axes import Mirror, TransposeAxes
from detaug.transforms.compose import Compose
from tests.support.transforms.generators import generator

DTYPES = (np.float32, np.float64, np.float16, np.int16, np.uint8, bool, np.int64)
SHAPES = ((2, 5, 7, 9), (1, 1, 20, 33), (3, 17, 1, 35), (1, 40, 5, 1), (2, 6, 8), (1, 1, 9))


def some(shape, dtype=np.float32, seed=0):
    return (generator(seed).random(shape) * 100).astype(dtype)


def as_params(order, flips):
    """One map as the params of a transposition and a mirroring."""
    return {
        "transforms": [
            {"axis_order": [0, *(a + 1 for a in order)]},
            {"axes": [a for a, f in enumerate(flips) if f]},
        ]
    }


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_order_and_direction_of_axes_is_what_numpy_makes_of_it(dtype):
    both = Compose([TransposeAxes(()), Mirror(())])
    for shape in SHAPES:
        array = some(shape, dtype)
        for order, flips in product(
            permutations(range(len(shape) - 1)), product((0, 1), repeat=len(shape) - 1)
        ):
            expected = array.transpose(0, *(a + 1 for a in order))
            expected = np.flip(expected, [a + 1 for a, f in enumerate(flips) if f])
            result = both.apply({"segmentation": array}, as_params(order, flips))["segmentation"]
            np.testing.assert_array_equal(result, expected)
            assert result.dtype == array.dtype
