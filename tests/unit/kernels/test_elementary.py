"""exp, log and pow in float32, compared with float64 over their whole ranges."""

from __future__ import annotations

import numba
import numpy as np
import pytest

from detaug.kernels import elementary

#: The largest error that is allowed, in units in the last place.
MOST_ULP = 2.0
MIN_NORMAL = float(np.finfo(np.float32).tiny)


def over_an_array(function):
    """Return a function that applies a compiled function to every element of an array."""

    @numba.njit(error_model="numpy")
    def fill(x, out):
        for i in range(x.shape[0]):
            out[i] = function(x[i])

    def applied(x):
        out = np.empty_like(x)
        fill(x, out)
        return out

    return applied


@numba.njit(error_model="numpy")
def _unit_powers(base, exponent, out):
    for i in range(base.shape[0]):
        out[i] = elementary.unit_power(base[i], exponent)


negative_logs = over_an_array(elementary.negative_log)
exponentials = over_an_array(elementary.exponential)


def ulp(result, exact):
    """Return the error in units in the last place of the exact value in float32."""
    with np.errstate(over="ignore"):
        unit = np.spacing(np.abs(exact).astype(np.float32)).astype(np.float64)
    return np.abs(result.astype(np.float64) - exact) / unit


def normal_floats(count, low=MIN_NORMAL, high=3.4028235e38, seed=0):
    """Return random positive float32 from `low` to `high`, both ends, and 1.

    All bit patterns are equally probable, so that all orders of magnitude occur.
    """
    ends = np.array([low, high], np.float32)
    lowest, highest = ends.view(np.uint32)
    rng = np.random.default_rng(seed)
    bits = rng.integers(lowest, highest, count, dtype=np.uint32, endpoint=True)
    return np.concatenate([bits.view(np.float32), ends, np.ones(1, np.float32)])


def neighbours_of(value, reach):
    """Return a value and the `reach` float32 below it and above it."""
    bits = np.float32(value).view(np.uint32) + np.arange(-reach, reach + 1)
    return bits.astype(np.uint32).view(np.float32)


def test_the_log_of_random_numbers_is_within_5e_minus_8_or_2_ulp():
    of_all_sizes = normal_floats(250_000, 2.0**-33, 1)
    even = np.linspace(2.0**-33, 1, 150_000, dtype=np.float32)
    x = np.concatenate([of_all_sizes, even])
    exact = -np.log(x.astype(np.float64))
    logs = negative_logs(x)
    error = np.abs(logs.astype(np.float64) - exact)
    is_close = error < 5e-8
    assert (is_close | (ulp(logs, exact) <= MOST_ULP)).all()


def test_exp_is_within_2_ulp_from_the_smallest_subnormal_to_the_largest_number():
    rng = np.random.default_rng(1)
    of_all_sizes = rng.uniform(-103, 88.72, 250_000)
    near_zero = rng.uniform(-1, 1, 150_000)
    x = np.concatenate([of_all_sizes, near_zero]).astype(np.float32)
    exact = np.exp(x.astype(np.float64))
    assert ulp(exponentials(x), exact).max() <= MOST_ULP


def test_exp_ends_in_zero_and_infinity_and_passes_nan():
    x = np.array([-1e30, -np.inf, -104.1, 0, 88.8, 1e30, np.inf, np.nan], np.float32)
    expected = [0, 0, 0, 1, np.inf, np.inf, np.inf, np.nan]
    np.testing.assert_array_equal(exponentials(x), expected)


@pytest.mark.parametrize("exponent", [0.01, 0.3, 0.7, 0.9999, 1.00001, 1.5, 3.0, 10.0])
def test_unit_pow_is_within_1_2e_minus_7(exponent):
    of_all_sizes = normal_floats(50_000, high=1)
    even = np.linspace(0, 1, 100_001, dtype=np.float32)
    x = np.concatenate([of_all_sizes, even, neighbours_of(1, 500)])
    x = x[x <= 1]
    powers = np.empty_like(x)
    _unit_powers(x, np.float32(exponent), powers)
    exact = x.astype(np.float64) ** float(np.float32(exponent))
    assert np.abs(powers - exact).max() <= 1.2e-7
    assert powers[x == 0] == 0
    assert (powers[x == 1] == 1).all()


@pytest.mark.parametrize(
    ("exponent", "ulps"), [(0.3, 3), (0.7, 3), (1.0, 3), (1.5, 3), (3.0, 6), (8.0, 50)]
)
def test_a_gamma_curve_is_a_power_of_numbers_from_0_to_1(exponent: float, ulps: float) -> None:
    from detaug.kernels.gamma import gamma_curve, power_parts

    gamma = np.float32(exponent)
    even = np.linspace(0, 1, 100_001)
    of_all_sizes = 10.0 ** np.linspace(-37, 0, 100_001)
    x = np.concatenate([[0, 1], even, of_all_sizes]).astype(np.float32)
    curve = np.empty_like(x)
    zero = np.float32(0)
    one = np.float32(1)
    parts = power_parts(float(gamma))
    gamma_curve(x, curve, zero, one, gamma, *parts, np.float32(0.5))
    expected = x.astype(np.float64) ** float(gamma)
    is_normal = expected > 1e-37
    assert ulp(curve[is_normal], expected[is_normal]).max() < ulps
    largest = 1.3e-7 if exponent <= 3 else 4e-7
    assert np.abs(curve - expected).max() < largest
    assert curve[0] == 0


def test_many_exponentials_are_each_ones() -> None:
    from detaug.kernels.scalars import exponential, exponentials

    x = np.linspace(-740, 700, 2001)
    assert exponentials(x).tolist() == [exponential(float(value)) for value in x]
