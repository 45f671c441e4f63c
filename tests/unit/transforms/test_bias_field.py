"""Bias fields: their formula in float64, their draws, and what they leave alone."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from detaug.transforms import BiasField
from tests.support.transforms.generators import generator, noise

SHAPES = ((2, 9, 14, 11), (1, 33, 20), (2, 7, 1, 12), (1, 1, 6, 1), (1, 1, 1))
LEGENDRE = [[1.0], [0, 1.0], [-0.5, 0, 1.5], [0, -1.5, 0, 2.5], [3 / 8, 0, -30 / 8, 0, 35 / 8]]


def degrees(order, dims):
    return [each for each in product(range(order + 1), repeat=dims) if sum(each) <= order]


def exponent(shape, coefficients, order, basis="powers"):
    """The polynomial in float64, term by term; and the sum of its terms' absolute values."""
    places = np.meshgrid(*(np.linspace(-1, 1, n) if n > 1 else np.zeros(1) for n in shape), indexing="ij")
    total, size = np.zeros(shape), np.zeros(shape)
    for own, coefficient in zip(degrees(order, len(shape)), coefficients, strict=True):
        term = np.full(shape, coefficient)
        for degree, place in zip(own, places, strict=True):
            row = LEGENDRE[degree] if basis == "legendre" else [0.0] * degree + [1.0]
            term *= sum(c * place**power for power, c in enumerate(row))
        total += term
        size += np.abs(term)
    return total, size


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("basis", ["powers", "legendre"])
@pytest.mark.parametrize("order", [0, 1, 3, 4])
def test_it_is_the_formula_in_float64_to_float32_rounding(shape, basis, order):
    image = noise(shape)
    transform = BiasField((-1.0, 1.0), order, basis, synchronize_channels=False)
    params = transform.sample(generator(order), {"image": shape})
    result = transform.apply({"image": image}, params)["image"]
    for c, coefficients in zip(params["apply_to_channel"], params["coefficients"], strict=True):
        exact = image[c] * np.exp(exponent(shape[1:], coefficients, order, basis)[0])
        np.testing.assert_allclose(result[c], exact, rtol=4e-7)


def test_strong_fields_are_as_accurate_as_weak_ones():
    image = np.ones((1, 20, 20, 20), np.float32)
    transform = BiasField((2.0, 4.0))
    params = transform.sample(generator(), {"image": image.shape})
    field, _ = exponent(image.shape[1:], params["coefficients"][0], 3)
    assert field.max() > 50
    result = transform.apply({"image": image}, params)["image"][0]
    np.testing.assert_allclose(result, np.exp(field), rtol=4e-7)


def test_a_wrong_number_of_coefficients_is_refused():
    with pytest.raises(ValueError, match=r"coefficients.*must be a list of 10, got \[1, 2, 3\]"):
        BiasField().apply({"image": noise((1, 4, 4))}, {"apply_to_channel": [0], "coefficients": [[1, 2, 3]]})
