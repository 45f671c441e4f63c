"""x^γ for many x from 0 to 1 and one γ.

With x = 2^k m, m from √½ to √2, the power is 2^(k γ) m^γ. γ is one number for a whole image, so
that 2^(k γ) is a table of 128 entries and m^γ a polynomial made for this γ: less work than a
logarithm and an exponential. The relative error is within 3 ulp for γ up to 1.5, 6 for 3, 50 for
`LARGEST`; the absolute one within 1.3e-7 for γ up to 3. Larger exponents take the longer way.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from detaug.kernels.compiling import inlined, kernel
from detaug.kernels.elementary import (
    MANTISSA,
    ONE_BITS,
    SQRT_HALF_BITS,
    bits_of_float,
    float_from_bits,
    unit_power,
)
from detaug.kernels.scalars import cosine, exponential, exponentials, natural_log
from detaug.kernels.statistics import LANES, add_to_lanes, mean_and_deviation
from detaug.kernels.threefry import PIECE

#: Up to this exponent the polynomial is close enough.
LARGEST = 8.0

# Coefficients of the polynomial.
_TERMS = 8
_HALF = LANES // 2
# Chebyshev's nodes for m - 1, m from √½ to √2.
_MIDDLE = (math.sqrt(2.0) + math.sqrt(0.5)) / 2.0 - 1.0
_HALF_WIDTH = (math.sqrt(2.0) - math.sqrt(0.5)) / 2.0
_NODES = [_MIDDLE + _HALF_WIDTH * cosine(math.pi * (j + 0.5) / _TERMS) for j in range(_TERMS)]
_LOGARITHMS = [natural_log(1.0 + f) for f in _NODES]

_f32 = np.float32
_u32 = np.uint32
_ZERO = _f32(0)
_ONE = _f32(1)
_LARGEST = _f32(LARGEST)
_LN2 = 0.6931471805599453


def power_parts(exponent: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the arguments of `gamma_curve` that follow from an exponent, float32.

    They are the coefficients (8,) of q in m^γ = 1 + f q(f), f = m - 1, by interpolation at
    Chebyshev nodes; and 2^((n - 127) γ) for n from 1 to 127, 0 for n = 0.
    """
    differences = []
    for f, logarithm in zip(_NODES, _LOGARITHMS, strict=True):
        differences.append((exponential(exponent * logarithm) - 1.0) / f)
    # Newton's divided differences, then multiplied out, in float64: coefficients are rounded to
    # float32 once, at the end.
    for order in range(1, _TERMS):
        for j in range(_TERMS - 1, order - 1, -1):
            rise = differences[j] - differences[j - 1]
            differences[j] = rise / (_NODES[j] - _NODES[j - order])
    monomials = [0.0] * _TERMS
    for j in range(_TERMS - 1, -1, -1):
        for i in range(_TERMS - 1, 0, -1):
            monomials[i] = monomials[i - 1] - _NODES[j] * monomials[i]
        monomials[0] = differences[j] - _NODES[j] * monomials[0]
    scales = exponentials(np.arange(-127, 1) * (exponent * _LN2)).astype(np.float32)
    # Bases of 0, and those below the least normal number, have the power 0.
    scales[0] = 0
    return np.array(monomials, np.float32), scales


@inlined
def _curve_of_piece(
    source: Any,
    origin: Any,
    width: Any,
    exponent: Any,
    polynomial: Any,
    scales: Any,
    out: Any,
    scale_index: Any,
) -> None:
    """Write the curve of at most `PIECE` values.

    Args:
        source, origin, width, exponent, polynomial, scales: as in `gamma_curve`.
        out: float32.
        scale_index: uint32, memory.
    """
    count = source.shape[0]
    if exponent > _LARGEST:
        for i in range(count):
            out[i] = unit_power((source[i] - origin) / width, exponent)
        return
    a0 = polynomial[0]
    a1 = polynomial[1]
    a2 = polynomial[2]
    a3 = polynomial[3]
    a4 = polynomial[4]
    a5 = polynomial[5]
    a6 = polynomial[6]
    a7 = polynomial[7]
    for i in range(count):
        base = (source[i] - origin) / width
        base = base if base > _ZERO else _ZERO
        # The exponent of base / √½, so that what is left is a mantissa m from √½ to √2.
        bits = _u32(bits_of_float(base) - SQRT_HALF_BITS)
        scale_index[i] = _u32(_u32(_u32(bits + ONE_BITS) >> _u32(23)) & _u32(127))
        f = float_from_bits(_u32(_u32(bits & MANTISSA) + SQRT_HALF_BITS)) - _ONE
        f_2 = f * f
        lower = (a0 + a1 * f) + (a2 + a3 * f) * f_2
        upper = (a4 + a5 * f) + (a6 + a7 * f) * f_2
        out[i] = _ONE + f * (lower + upper * (f_2 * f_2))
    # A loop of its own: with look-ups in it, the one above would not use vectors on older CPUs.
    # Unsigned: a signed index would be tested for its sign.
    for i in range(count):
        out[i] *= scales[np.uint64(scale_index[i])]


@inlined
def _add_whole_piece(values: Any, pivot: Any, sums: Any, squares: Any) -> None:
    """Add exactly `PIECE` values, eight of which are added in float32 before they go to their lane.

    With a pivot next to the mean, float32 loses nothing that matters, and there are an eighth of
    the conversions to float64.

    Args:
        values: (PIECE,) float32.
        pivot: float32, a guess at the mean.
        sums, squares: (LANES,) float64; the first half of the lanes is added to.
    """
    for i in range(_HALF):
        a = values[i] - pivot
        b = values[LANES + i] - pivot
        c = values[2 * LANES + i] - pivot
        d = values[3 * LANES + i] - pivot
        e = values[_HALF + i] - pivot
        f = values[_HALF + LANES + i] - pivot
        g = values[_HALF + 2 * LANES + i] - pivot
        h = values[_HALF + 3 * LANES + i] - pivot
        sums[i] += np.float64(((a + b) + (c + d)) + ((e + f) + (g + h)))
        lower = (a * a + b * b) + (c * c + d * d)
        upper = (e * e + f * f) + (g * g + h * h)
        squares[i] += np.float64(lower + upper)


@kernel(
    "UniTuple(float64, 2)(float32[::1], float32[::1], float32, float32, float32, float32[::1],"
    " float32[::1], float32)",
)
def gamma_curve(
    source: Any,
    destination: Any,
    origin: Any,
    width: Any,
    exponent: Any,
    polynomial: Any,
    scales: Any,
    pivot: Any,
) -> Any:
    """Write ``((source - origin) / width) ^ exponent``, and return mean and standard deviation.

    They are those of the new values.

    Args:
        source: flat; all bases must be from 0 to 1.
        destination: flat; it may be the source.
        origin, width: of the bases.
        exponent: above 0.
        polynomial, scales: `power_parts`.
        pivot: a guess at the mean of the new values.
    """
    # The curve goes to the destination by way of this: the compiler knows that it is none of the
    # two arrays, which may be one.
    curve = np.empty(PIECE, np.float32)
    scale_index = np.empty(PIECE, np.uint32)
    sums = np.zeros(LANES)
    squares = np.zeros(LANES)
    for start in range(0, source.shape[0], PIECE):
        result = destination[start : start + PIECE]
        _curve_of_piece(
            source[start : start + PIECE],
            origin,
            width,
            exponent,
            polynomial,
            scales,
            curve,
            scale_index,
        )
        if result.shape[0] == PIECE:
            _add_whole_piece(curve, pivot, sums, squares)
        else:
            for first in range(0, result.shape[0], LANES):
                last = min(first + LANES, result.shape[0])
                add_to_lanes(curve[first:last], np.float64(pivot), sums, squares)
        for i in range(result.shape[0]):
            result[i] = curve[i]
    return mean_and_deviation(sums, squares, np.float64(pivot), source.shape[0])
