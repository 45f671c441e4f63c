"""exp, log and pow in float32 as polynomials in a fixed order: the same bytes on every CPU.

A libm chooses among variants by the CPU it finds, and so do vectorised NumPy and torch. What is
here uses only additions, multiplications, comparisons and bit operations, each rounded as IEEE 754
says (`tests/unit/kernels/test_elementary.py` measures the errors over the ranges given below).
Coefficients are minimax fits on the reduced range, rounded to float32 one after another;
polynomials are summed in pairs (Estrin's scheme), for a CPU has more than one multiplier.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic

from detaug.kernels.compiling import inlined

_f32 = np.float32
_i32 = np.int32
_u32 = np.uint32


def _bitcast(from_type: Any, to_type: Any) -> Any:
    """Return an intrinsic that reads the bits of one type as another.

    It works in compiled code only.
    """

    @intrinsic
    # The signature that Numba wants.
    def cast(typing_context: Any, value: Any) -> Any:  # noqa: ARG001
        def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            return builder.bitcast(arguments[0], context.get_value_type(to_type))

        return to_type(from_type), generate

    return cast


float_from_bits = _bitcast(types.uint32, types.float32)
bits_of_float = _bitcast(types.float32, types.uint32)
_SIGN = _u32(0x80000000)


@inlined
def key_of(x: Any) -> Any:
    """Return a uint32 that is ordered as float32 numbers are.

    -0 comes before 0, NaN last (negative NaN first).
    """
    bits = bits_of_float(x)
    flip = _u32(_i32(_i32(bits) >> _i32(31)))
    return _u32(bits ^ _u32(flip | _SIGN))


@inlined
def value_of(key: Any) -> Any:
    """Return the number of a key."""
    flip = _u32(_i32(_i32(key) >> _i32(31)))
    return float_from_bits(_u32(key ^ _u32(_u32(~flip) | _SIGN)))


_ONE = _f32(1)
# Adding it leaves an integer in the low bits, rounded to nearest, ties to even; subtracting it
# again gives that integer as a float32.
_ROUNDER = _f32(1.5 * 2.0**23)
#: The bits of 1 and of √½ as float32, and those that hold a float32's mantissa.
ONE_BITS = _u32(0x3F800000)
SQRT_HALF_BITS = _u32(0x3F3504F3)
MANTISSA = _u32(0x007FFFFF)
_MIN_NORMAL = _f32(2.0**-126)

_LOG2_E = 1.4426950408889634
_MINUS_LN2 = _f32(-0.6931471805599453)
# 12 bits of ln 2, so that its products with small integers are exact, and the rest.
_LN2_HIGH = _f32(0.693359375)
_LN2_LOW = _f32(-2.12194440e-4)

# (ln(1 + f) - f) / f² on [√½ - 1, √2 - 1]; absolute error of the whole 2^-24.7
_B = (-0.500005841, 0.333352625, -0.249614745, 0.198882475, -0.173258722, 0.163358301, -0.100351915)
_B0, _B1, _B2, _B3, _B4, _B5, _B6 = (_f32(c) for c in _B)
# (e^r - 1 - r) / r² on ± 0.51 ln 2
_E0, _E1, _E2, _E3, _E4 = (
    _f32(c) for c in (0.49999994, 0.166665122, 0.0416683033, 0.00836982764, 0.00138203206)
)
# (2^r - 1) / r on ± 0.51
_P = (0.693147182, 0.240226477, 0.0555035658, 0.0096185077, 0.00133928063, 0.000153288929)
_P0, _P1, _P2, _P3, _P4, _P5 = (_f32(c) for c in _P)
# log2(1 + f) / f on [√½ - 1, √2 - 1]; absolute error of log2 2^-27.0
_G = (
    1.4426949,
    -0.721347153,
    0.480920434,
    -0.360719085,
    0.287694842,
    -0.238569692,
    0.217156723,
    -0.209959805,
    0.125506997,
)
_G0, _G1, _G2, _G3, _G4, _G5, _G6, _G7, _G8 = (_f32(c) for c in _G)


@inlined
def negative_log(x: Any) -> Any:
    """Return -ln x of 0 < x <= 1, for random numbers.

    It is good to 5e-8 absolutely or 2 ulp, whichever is more.
    """
    # x = 2^exponent (1 + f), with 1 + f from √½ to √2: around 1 the polynomial is at its best.
    bits = _u32(bits_of_float(x) - SQRT_HALF_BITS)
    exponent = _f32(_i32(_i32(bits) >> _i32(23)))
    f = float_from_bits(_u32(_u32(bits & MANTISSA) + SQRT_HALF_BITS)) - _ONE
    f_2 = f * f
    lower = (_B0 + _B1 * f) + (_B2 + _B3 * f) * f_2
    upper = (_B4 + _B5 * f) + _B6 * f_2
    p = lower + upper * (f_2 * f_2)
    return exponent * _MINUS_LN2 - (f + f_2 * p)


@inlined
def exponential(x: Any) -> Any:
    """Return e^x within 2 ulp.

    It is infinity above 88.73, subnormal numbers and then 0 below -87.34; NaN of NaN.
    """
    # Limited to where the result is infinite or 0: the integer below must fit into an exponent.
    x = _f32(90) if x > _f32(90) else x
    x = _f32(-105) if x < _f32(-105) else x
    shifted = x * _f32(_LOG2_E) + _ROUNDER
    n = shifted - _ROUNDER
    r = (x - n * _LN2_HIGH) - n * _LN2_LOW
    r_2 = r * r
    p = (_E0 + _E1 * r) + ((_E2 + _E3 * r) + _E4 * r_2) * r_2
    value = _ONE + (r + r_2 * p)
    # In two factors, for n runs from -151 to 130, and a float32's exponent from -126 to 127.
    power_of_two = _i32(bits_of_float(shifted) - bits_of_float(_ROUNDER))
    half = _i32(power_of_two >> _i32(1))
    other = _i32(power_of_two - half)
    first = float_from_bits(_u32(_u32(_u32(half) << _u32(23)) + ONE_BITS))
    second = float_from_bits(_u32(_u32(_u32(other) << _u32(23)) + ONE_BITS))
    return value * first * second


@inlined
def unit_power(base: Any, exponent: Any) -> Any:
    """Return base^exponent for a base from 0 to 1 and an exponent above 0.

    The *absolute* error is below 1.2e-7.

    What the rounding of exponent · log2(base) does to a result is small where the result itself is.
    A base below 2^-126 counts as 0. NaN of NaN.
    """
    # base = 2^k (1 + f), as in `negative_log`.
    bits = _u32(bits_of_float(base) - SQRT_HALF_BITS)
    k = _f32(_i32(_i32(bits) >> _i32(23)))
    f = float_from_bits(_u32(_u32(bits & MANTISSA) + SQRT_HALF_BITS)) - _ONE
    f_2 = f * f
    f_4 = f_2 * f_2
    lower = (_G0 + _G1 * f) + (_G2 + _G3 * f) * f_2
    upper = ((_G4 + _G5 * f) + (_G6 + _G7 * f) * f_2) + _G8 * f_4
    power = exponent * (k + f * (lower + upper * f_4))
    # The least exponent of a normal number.
    power = _f32(-126) if power < _f32(-126) else power
    shifted = power + _ROUNDER
    r = power - (shifted - _ROUNDER)
    r_2 = r * r
    q = (_P0 + _P1 * r) + ((_P2 + _P3 * r) + (_P4 + _P5 * r) * r_2) * r_2
    # The integer in the low bits of `shifted` becomes the exponent of a power of two.
    scale = float_from_bits(_u32(_u32(bits_of_float(shifted) << _u32(23)) + ONE_BITS))
    value = (_ONE + r * q) * scale
    # 0 times the base, so that NaN stays NaN.
    return value if base >= _MIN_NORMAL else base * _f32(0)
