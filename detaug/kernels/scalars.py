"""exp, log, sine and cosine in float64, the same bits on every machine.

`math.sin` and its like come from the C library, which chooses among variants by the CPU it finds
(with and without fused multiply-add) and whose results change between versions. Parameters of
transforms are computed with what is here: plain Python additions, multiplications and divisions,
`math.sqrt` and `math.floor`, each rounded as IEEE 754 says. Absolute errors of sine and cosine are
below 2e-16 up to 1,000 radians and 3e-16 up to a million; relative errors of exp (where the result
is a normal number) and log are below 4e-16 (`tests/unit/test_arithmetic.py`).
"""

from __future__ import annotations

import math

import numpy as np

# ln 2 to 32 bits, so that its products with small integers are exact.
_LN2_HIGH = 6.93147180369123816490e-01
_LN2_LOW = 1.90821492927058770002e-10
# pi / 2 to 33 bits, the next 33, and the rest: products with small integers are exact.
_HALF_PI_HIGH = 1.57079632673412561417e00
_HALF_PI_MIDDLE = 6.07710050630396597660e-11
_HALF_PI_LOW = 2.02226624879595063154e-21

# Taylor coefficients; arguments are reduced far enough for them.
_SINE = (
    1.0,
    -1.0 / 6.0,
    1.0 / 120.0,
    -1.0 / 5040.0,
    1.0 / 362880.0,
    -1.0 / 39916800.0,
    1.0 / 6227020800.0,
    -1.0 / 1307674368000.0,
    1.0 / 355687428096000.0,
)
_COSINE = (
    1.0,
    -1.0 / 2.0,
    1.0 / 24.0,
    -1.0 / 720.0,
    1.0 / 40320.0,
    -1.0 / 3628800.0,
    1.0 / 479001600.0,
    -1.0 / 87178291200.0,
    1.0 / 20922789888000.0,
    -1.0 / 6402373705728000.0,
)
_EXP = tuple(1.0 / math.factorial(n) for n in range(15))
_ATANH = tuple(1.0 / (2 * n + 1) for n in range(12))


def _polynomial(coefficients: tuple[float, ...], x: float) -> float:
    """Return a polynomial's value by Horner's scheme; coefficients are those of x^0, x^1 ..."""
    total = 0.0
    for coefficient in reversed(coefficients):
        total = total * x + coefficient
    return total


def sine(x: float) -> float:
    """Return sin x, x in radians, |x| < 1e6."""
    quadrant, r = _reduced(x)
    value = _cosine_of_reduced(r) if quadrant & 1 else _sine_of_reduced(r)
    return -value if quadrant & 2 else value


def cosine(x: float) -> float:
    """Return cos x, x in radians, |x| < 1e6."""
    quadrant, r = _reduced(x)
    value = _sine_of_reduced(r) if quadrant & 1 else _cosine_of_reduced(r)
    return -value if (quadrant + 1) & 2 else value


def _reduced(x: float) -> tuple[int, float]:
    """Return x as a number of quarter turns (modulo 4) and a rest within ± pi/4."""
    if not abs(x) < 1e6:
        raise ValueError(f"an angle must be within ±1e6 radians, got {x!r}")
    n = math.floor(x / 1.5707963267948966 + 0.5)
    return n & 3, ((x - n * _HALF_PI_HIGH) - n * _HALF_PI_MIDDLE) - n * _HALF_PI_LOW


def _sine_of_reduced(r: float) -> float:
    return r * _polynomial(_SINE, r * r)


def _cosine_of_reduced(r: float) -> float:
    return _polynomial(_COSINE, r * r)


def exponential(x: float) -> float:
    """Return e^x; 0 below -745, infinity above 709.78, NaN of NaN."""
    # NaN fails all comparisons below, and would reach `floor`, which raises for it.
    if math.isnan(x):
        return x
    if x < -745.0:
        return 0.0
    if x > 709.78:
        return math.inf
    n = math.floor(x / 0.6931471805599453 + 0.5)
    r = (x - n * _LN2_HIGH) - n * _LN2_LOW
    return math.ldexp(_polynomial(_EXP, r), n)


def exponentials(x: np.ndarray) -> np.ndarray:
    """Return `exponential` of every element of a float64 array, bit for bit.

    Elements must be within -745 ... 709.
    """
    # The operations of `exponential` in the same order, so that every bit agrees.
    n = np.floor(x / 0.6931471805599453 + 0.5)
    r = (x - n * _LN2_HIGH) - n * _LN2_LOW
    total = np.zeros_like(r)
    for coefficient in reversed(_EXP):
        total = total * r + coefficient
    return np.ldexp(total, n.astype(np.int64))


def natural_log(x: float) -> float:
    """Return ln x, x > 0."""
    if not x > 0.0:
        raise ValueError(f"the logarithm needs a positive number, got {x!r}")
    # x = 2^n m with m from √½ to √2, and ln m = 2 artanh((m - 1) / (m + 1)).
    m, n = math.frexp(x)
    if m < 0.7071067811865476:
        m = 2.0 * m
        n = n - 1
    s = (m - 1.0) / (m + 1.0)
    return n * _LN2_HIGH + (n * _LN2_LOW + 2.0 * s * _polynomial(_ATANH, s * s))
