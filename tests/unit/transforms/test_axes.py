"""Mirroring, quarter turns and exchange of axes."""

from itertools import permutations, product

import numpy as np
import pytest

from detaug.transforms.axes import Mirror, TransposeAxes
from detaug.transforms.compose import Compose
from tests.support.transforms.generators import generator

DTYPES = (np.float32, np.float64, np.float16, np.int16, np.uint8, bool, np.int64)
SHAPES = ((2, 5, 7, 9), (1, 1, 20, 33), (3, 17, 1, 35), (1, 40, 5, 1), (2, 6, 8), (1, 1, 9))


def random_array(shape, dtype):
    return (generator(0).random(shape) * 100).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_order_and_direction_of_axes_is_what_numpy_makes_of_it(dtype):
    transposed_and_mirrored = Compose([TransposeAxes(()), Mirror(())])
    for shape in SHAPES:
        array = random_array(shape, dtype)
        dims = len(shape) - 1
        orders = permutations(range(dims))
        # Whether each axis is mirrored.
        directions = product((False, True), repeat=dims)
        for order, is_mirrored in product(orders, directions):
            axis_order = [0, *(axis + 1 for axis in order)]
            axes = [axis for axis in range(dims) if is_mirrored[axis]]
            params = {"transforms": [{"axis_order": axis_order}, {"axes": axes}]}
            result = transposed_and_mirrored.apply({"segmentation": array}, params)["segmentation"]
            expected = np.flip(array.transpose(axis_order), [axis + 1 for axis in axes])
            np.testing.assert_array_equal(result, expected)
            assert result.dtype == array.dtype
