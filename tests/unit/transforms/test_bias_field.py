"""Bias fields: 2-D, axes of one voxel and strong fields, in float64."""

from __future__ import annotations

from functools import reduce
from itertools import product

import numpy as np
import pytest

from detaug.transforms import BiasField
from tests.support.transforms.generators import generator, noise

SERIES = {"powers": np.polynomial.Polynomial.basis, "legendre": np.polynomial.Legendre.basis}


@pytest.mark.parametrize(
    "shape", [(1, 33, 20), (2, 7, 1, 12), (1, 1, 6, 1), (1, 1, 1), (1, 20, 20, 20)]
)
@pytest.mark.parametrize("basis", SERIES)
@pytest.mark.parametrize(("order", "low", "high"), [(0, -1.0, 1.0), (3, 2.0, 4.0), (4, -1.0, 1.0)])
def test_it_is_the_formula_in_float64_to_float32_rounding(shape, basis, order, low, high):
    image = noise(shape)
    transform = BiasField((low, high), order, basis, synchronize_channels=False)
    params = transform.sample(generator(order), {"image": shape})
    result = transform.apply({"image": image}, params)["image"]
    places = [np.linspace(-1, 1, n) if n > 1 else np.zeros(1) for n in shape[1:]]
    degrees = [each for each in product(range(order + 1), repeat=len(places)) if sum(each) <= order]
    for c, coefficients in zip(params["apply_to_channel"], params["coefficients"], strict=True):
        exponent = np.zeros(shape[1:])
        for own, coefficient in zip(degrees, coefficients, strict=True):
            factors = [SERIES[basis](n)(place) for n, place in zip(own, places, strict=True)]
            exponent += coefficient * reduce(np.multiply.outer, factors)
        np.testing.assert_allclose(result[c], image[c] * np.exp(exponent), rtol=4e-7)
