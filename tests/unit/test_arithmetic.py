"""The accuracy that detaug.kernels.scalars states, against 60-digit decimals."""

from __future__ import annotations

import math
import random
from decimal import Decimal, getcontext

import pytest

from detaug.kernels.scalars import cosine, exponential, natural_log, sine

getcontext().prec = 60
_PI = Decimal(
    "3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803482534211706798"
)


def _sine(x: Decimal) -> Decimal:
    x = x.remainder_near(2 * _PI)
    total = term = x
    for n in range(1, 40):
        term *= -x * x / ((2 * n) * (2 * n + 1))
        total += term
    return total


def _arguments(low: float, high: float, count: int = 300) -> list[float]:
    rng = random.Random(7)
    return [rng.uniform(low, high) for _ in range(count)]


@pytest.mark.parametrize(
    ("reach", "most"), [(1.0, "2e-16"), (10.0, "2e-16"), (1000.0, "2e-16"), (999_999.0, "3e-16")]
)
def test_sine_and_cosine_err_by_less_than_that(reach: float, most: str) -> None:
    for x in _arguments(-reach, reach):
        assert abs(Decimal(sine(x)) - _sine(Decimal(x))) < Decimal(most)
        assert abs(Decimal(cosine(x)) - _sine(Decimal(x) + _PI / 2)) < Decimal(most)


def test_quarter_turns_are_right() -> None:
    assert sine(0.0) == 0.0
    assert cosine(0.0) == 1.0
    assert sine(math.pi / 2) == 1.0
    assert cosine(math.pi) == -1.0
    assert abs(cosine(math.pi / 2)) < 1e-16


@pytest.mark.parametrize("angle", [1e6, -2e6, math.inf, math.nan])
def test_angles_beyond_a_million_radians_are_refused(angle: float) -> None:
    with pytest.raises(ValueError, match="within"):
        sine(angle)


@pytest.mark.parametrize("reach", [0.5, 20.0, 700.0])
def test_exp_errs_relatively_by_less_than_4e_16(reach: float) -> None:
    for x in _arguments(-reach, reach):
        exact = Decimal(x).exp()
        assert abs(Decimal(exponential(x)) - exact) < Decimal("4e-16") * exact


def test_exp_ends_in_zero_and_infinity() -> None:
    assert exponential(0.0) == 1.0
    assert exponential(-800.0) == 0.0
    assert exponential(-math.inf) == 0.0
    assert exponential(710.0) == math.inf
    assert exponential(math.inf) == math.inf
    assert 0.0 < exponential(-745.0) < 1e-320
    assert math.isnan(exponential(math.nan))


@pytest.mark.parametrize(
    ("low", "high"), [(0.5, 0.99), (1.01, 2.0), (0.999, 1.001), (1e-300, 1e-290), (3.0, 1e6)]
)
def test_log_errs_relatively_by_less_than_4e_16(low: float, high: float) -> None:
    for x in _arguments(low, high):
        exact = Decimal(x).ln()
        assert abs(Decimal(natural_log(x)) - exact) <= Decimal("4e-16") * abs(exact)


def test_log_of_powers_of_two() -> None:
    assert natural_log(1.0) == 0.0
    assert natural_log(5e-324) == pytest.approx(math.log(2.0) * -1074, rel=1e-15)


@pytest.mark.parametrize("x", [0.0, -1.0, math.nan])
def test_log_needs_a_positive_number(x: float) -> None:
    with pytest.raises(ValueError, match="positive"):
        natural_log(x)
