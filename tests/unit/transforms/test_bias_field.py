"""Bias fields in 2-D and 3-D, along axes of one voxel, and strong ones, against float64."""

from __future__ import annotations

from functools import reduce
from itertools import product

import numpy as np
import pytest

from detaug.transforms import BiasField
from tests.support.transforms.generators import generator, noise

SERIES = {"powers": np.polynomial.Polynomial.basis, "legendre": np.polynomial.Legendre.basis}


SHAPES = [
    (1, 33, 20),
    (2, 7, 1, 12),
    (1, 1, 6, 1),
    (1, 1, 1),
    (1, 20, 20, 20),
]


def positions_of(length):
    """Return the positions of the voxels along an axis: from -1 to 1, or 0 for a single voxel."""
    if length == 1:
        return np.zeros(1)
    return np.linspace(-1, 1, length)


def degrees_up_to(order, axes):
    """Return for each term, in the coefficients' order, its degree along every axis."""
    return [degrees for degrees in product(range(order + 1), repeat=axes) if sum(degrees) <= order]


def term(polynomial, degrees, positions):
    """Return the values of a term in all voxels: a product of polynomials of the axes."""
    factors = []
    for degree, along_axis in zip(degrees, positions, strict=True):
        factors.append(polynomial(degree)(along_axis))
    return reduce(np.multiply.outer, factors)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("basis", SERIES)
@pytest.mark.parametrize(("order", "low", "high"), [(0, -1.0, 1.0), (3, 2.0, 4.0), (4, -1.0, 1.0)])
def test_it_is_the_formula_in_float64_to_float32_rounding(shape, basis, order, low, high):
    image = noise(shape)
    transform = BiasField((low, high), order, basis, synchronize_channels=False)
    params = transform.sample(generator(order), {"image": shape})
    result = transform.apply({"image": image}, params)["image"]
    positions = [positions_of(length) for length in shape[1:]]
    degrees = degrees_up_to(order, len(positions))
    for c, coefficients in zip(params["apply_to_channel"], params["coefficients"], strict=True):
        exponent = np.zeros(shape[1:])
        for degrees_of_term, coefficient in zip(degrees, coefficients, strict=True):
            exponent += coefficient * term(SERIES[basis], degrees_of_term, positions)
        np.testing.assert_allclose(result[c], image[c] * np.exp(exponent), rtol=4e-7)
