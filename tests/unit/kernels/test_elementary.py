"""exp, log, pow, sine and cosine in float32 against float64, over their whole ranges."""

from __future__ import annotations

import numba
import numpy as np
import pytest

from detaug.kernels import elementary

MOST_ULP = 2.0
MIN_NORMAL = float(np.finfo(np.float32).tiny)


def over_an_array(function):
    @numba.njit(error_model="numpy")
    def applied(x, out):
        for i in range(x.shape[0]):
            out[i] = function(x[i])

    return lambda x: (lambda out: applied(x, out) or out)(np.empty_like(x))


@numba.njit(error_model="numpy")
def _powers(base, exponent, out):
    for i in range(base.shape[0]):
        out[i] = elementary.power(base[i], exponent)


@numba.njit(error_model="numpy")
def _unit_powers(base, exponent, out):
    for i in range(base.shape[0]):
        out[i] = elementary.unit_power(base[i], exponent)


@numba.njit(error_model="numpy")
def _sines_and_cosines(x, sines, cosines):
    for i in range(x.shape[0]):
        sines[i], cosines[i] = elementary.sine_cosine(x[i])


logs = over_an_array(elementary.natural_log)
exponentials = over_an_array(elementary.exponential)


def powers(base, exponent):
    out = np.empty_like(base)
    _powers(base, np.float32(exponent), out)
    return out


def sines_and_cosines(x):
    sines, cosines = np.empty_like(x), np.empty_like(x)
    _sines_and_cosines(x, sines, cosines)
    return sines, cosines


def ulp(found, exact):
    """The error in units of the last place of the exact value's float32."""
    with np.errstate(over="ignore"):
        place = np.spacing(np.abs(exact).astype(np.float32)).astype(np.float64)
    return np.abs(found.astype(np.float64) - exact) / place


def normal_floats(count, low=MIN_NORMAL, high=3.4028235e38, seed=0):
    """Positive float32 of every size between two values, each bit pattern as likely as any other, and the ends."""
    ends = np.array([low, high], np.float32).view(np.uint32)
    bits = np.random.default_rng(seed).integers(ends[0], ends[1], count, dtype=np.uint32, endpoint=True)
    return np.concatenate([bits.view(np.float32), np.array([low, high, 1.0], np.float32)])


def neighbours_of(value, reach=2000):
    return (np.float32(value).view(np.uint32) + np.arange(-reach, reach + 1)).astype(np.uint32).view(np.float32)


def test_log_is_within_2_ulp_of_every_size_of_number_and_close_to_1():
    x = np.concatenate(
        [normal_floats(250_000), normal_floats(150_000, 0.25, 4), neighbours_of(1), neighbours_of(0.70710678)]
    )
    x = x[x != 1]
    assert ulp(logs(x), np.log(x.astype(np.float64))).max() <= MOST_ULP
    assert logs(np.ones(3, np.float32)).tolist() == [0, 0, 0]


def test_exp_is_within_2_ulp_from_the_smallest_subnormal_to_the_largest_number():
    rng = np.random.default_rng(1)
    x = np.concatenate([rng.uniform(-103, 88.72, 250_000), rng.uniform(-1, 1, 150_000)]).astype(np.float32)
    assert ulp(exponentials(x), np.exp(x.astype(np.float64))).max() <= MOST_ULP


def test_exp_ends_in_zero_and_infinity_and_passes_nan():
    x = np.array([-1e30, -np.inf, -104.1, 0, 88.8, 1e30, np.inf, np.nan], np.float32)
    found = exponentials(x)
    np.testing.assert_array_equal(found, np.array([0, 0, 0, 1, np.inf, np.inf, np.inf, np.nan], np.float32))


@pytest.mark.parametrize("exponent", [0.3, 0.5, 0.7, 0.9999, 1.0, 1.00001, 1.5, 2.0, 2.7182818, 3.0])
def test_pow_of_bases_from_0_to_1_is_within_2_ulp(exponent):
    x = np.concatenate([normal_floats(100_000, high=1), normal_floats(100_000, 1e-3, 1), neighbours_of(1, 500)])
    exact = x.astype(np.float64) ** np.float64(np.float32(exponent))
    normal = exact >= MIN_NORMAL
    assert ulp(powers(x, exponent), exact)[normal].max() <= MOST_ULP
    assert (powers(x, exponent)[~normal] <= MIN_NORMAL).all()


def test_pow_of_any_positive_base_is_within_2_ulp_for_random_exponents():
    rng = np.random.default_rng(2)
    for exponent in rng.uniform(0.3, 3, 20).astype(np.float32):
        x = normal_floats(40_000, seed=int(rng.integers(2**31)))
        exact = x.astype(np.float64) ** np.float64(exponent)
        inside = (exact >= MIN_NORMAL) & (exact < 2.0**127.4)
        assert ulp(powers(x, exponent), exact)[inside].max() <= MOST_ULP


def test_pow_of_zero_is_zero_and_of_one_is_one_and_nan_passes():
    for exponent in (0.3, 1.0, 3.0, 64.0):
        found = powers(np.array([0, 1e-40, 1, np.nan], np.float32), exponent)
        np.testing.assert_array_equal(found, np.array([0, 0, 1, np.nan], np.float32))


def test_pow_to_the_power_of_one_is_the_identity():
    x = normal_floats(100_000, high=2.0**127)
    x = x[x >= 2.0**-125]
    assert ulp(powers(x, 1.0), x.astype(np.float64)).max() <= 1


def test_sine_and_cosine_are_within_2_ulp_up_to_1000_radians_and_next_to_their_zeros():
    rng = np.random.default_rng(3)
    zeros = [neighbours_of(n * np.pi / 2, 50) for n in (*range(1, 40), 101, 102, 501, 636)]
    x = np.concatenate(
        [rng.uniform(-1000, 1000, 150_000), rng.uniform(-7, 7, 150_000), normal_floats(100_000, high=1000), *zeros]
    ).astype(np.float32)
    sines, cosines = sines_and_cosines(x)
    assert ulp(sines, np.sin(x.astype(np.float64))).max() <= MOST_ULP
    assert ulp(cosines, np.cos(x.astype(np.float64))).max() <= MOST_ULP


def test_sine_and_cosine_pass_nan_and_are_exact_at_zero():
    sines, cosines = sines_and_cosines(np.array([0, np.nan], np.float32))
    assert sines[0] == 0
    assert cosines[0] == 1
    assert np.isnan(sines[1])
    assert np.isnan(cosines[1])


@pytest.mark.parametrize("exponent", [0.01, 0.3, 0.7, 0.9999, 1.00001, 1.5, 3.0, 10.0])
def test_unit_pow_is_within_1_2e_minus_7(exponent):
    x = np.concatenate(
        [normal_floats(50_000, high=1), np.linspace(0, 1, 100_001, dtype=np.float32), neighbours_of(1, 500)]
    )
    x = x[x <= 1]
    found = np.empty_like(x)
    _unit_powers(x, np.float32(exponent), found)
    assert np.abs(found - x.astype(np.float64) ** np.float64(np.float32(exponent))).max() <= 1.2e-7
    assert found[x == 0] == 0
    assert (found[x == 1] == 1).all()


@pytest.mark.parametrize(("exponent", "ulps"), [(0.3, 3), (0.7, 3), (1.0, 3), (1.5, 3), (3.0, 6), (8.0, 50)])
def test_a_gamma_curve_is_a_power_of_numbers_from_0_to_1(exponent: float, ulps: float) -> None:
    from detaug.kernels.gamma import gamma_curve, power_parts

    gamma = np.float32(exponent)
    x = np.concatenate(([0, 1], np.linspace(0, 1, 100_001), 10.0 ** np.linspace(-37, 0, 100_001))).astype(np.float32)
    found = np.empty_like(x)
    gamma_curve(x, found, np.float32(0), np.float32(1), gamma, *power_parts(float(gamma)), np.float32(1), np.float32(0))
    expected = x.astype(np.float64) ** float(gamma)
    normal = expected > 1e-37
    error = np.abs(found - expected)
    assert (error[normal] / np.spacing(expected[normal].astype(np.float32))).max() < ulps
    assert error.max() < (1.3e-7 if exponent <= 3 else 4e-7)
    assert found[0] == 0


def test_many_exponentials_are_each_ones() -> None:
    from detaug.kernels.scalars import exponential, exponentials

    x = np.linspace(-740, 700, 2001)
    assert exponentials(x).tolist() == [exponential(float(value)) for value in x]
