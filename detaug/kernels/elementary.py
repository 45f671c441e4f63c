"""exp, log, pow, sine and cosine in float32 as polynomials in a fixed order: the same bytes on every CPU.

A libm chooses among variants by the CPU it finds, and so do vectorised NumPy and torch. What is here uses
only additions, multiplications, comparisons and bit operations, each rounded as IEEE 754 says. Coefficients are least
squares fits at Chebyshev nodes (`tests/kernels/test_elementary.py` fits them anew and measures the errors).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic

from detaug.kernels.compiling import inlined

_f32 = np.float32
_i32 = np.int32
_u32 = np.uint32


@intrinsic  # type: ignore[untyped-decorator]
def float_from_bits(context: Any, bits: Any) -> Any:
    """The float32 with these 32 bits."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], context.get_value_type(types.float32))

    return types.float32(types.uint32), generate


@intrinsic  # type: ignore[untyped-decorator]
def bits_of_float(context: Any, value: Any) -> Any:
    """The 32 bits of a float32."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], context.get_value_type(types.uint32))

    return types.uint32(types.float32), generate


_ONE = _f32(1)
_LN2 = _f32(0.6931471805599453)
_SQRT_HALF_BITS = _u32(0x3F3504F3)
_MANTISSA = _u32(0x007FFFFF)
# (log1p(f) - f) / f² on [√½ - 1, √2 - 1]
_L = tuple(
    _f32(c)
    for c in (
        -0.49999998,
        0.33333321,
        -0.25000772,
        0.20001969,
        -0.166276,
        0.14189,
        -0.13101634,
        0.12821749,
        -0.07866668,
    )
)
_L0, _L1, _L2, _L3, _L4, _L5, _L6, _L7, _L8 = _L
# sin(π t / 2) / t and cos(π t / 2) as polynomials of t², |t| <= 1/2
_S0, _S1, _S2, _S3, _S4 = (
    _f32(c) for c in (1.57079633e00, -6.45964096e-01, 7.96925827e-02, -4.68126637e-03, 1.58206526e-04)
)
_C0, _C1, _C2, _C3, _C4 = (
    _f32(c) for c in (1.00000000e00, -1.23370054e00, 2.53669204e-01, -2.08600704e-02, 9.03629886e-04)
)
_TO_UNIT = _f32(2.0**-32)
_HALF_STEP = _f32(2.0**-33)
_MINUS_TWO = _f32(-2)


@inlined
def natural_log(x: Any) -> Any:
    """ln x of a positive, normal float32."""
    k = _u32(bits_of_float(x) - _SQRT_HALF_BITS)
    exponent = _f32(_i32(_i32(k) >> _i32(23)))
    f = float_from_bits(_u32(_u32(k & _MANTISSA) + _SQRT_HALF_BITS)) - _ONE
    p = _L8
    p = p * f + _L7
    p = p * f + _L6
    p = p * f + _L5
    p = p * f + _L4
    p = p * f + _L3
    p = p * f + _L2
    p = p * f + _L1
    p = p * f + _L0
    return exponent * _LN2 + (f + f * f * p)


@inlined
def normal_pair(a: Any, b: Any) -> Any:
    """Two standard normals from two uint32: Box and Muller's transform.

    The radius comes from (a + 1/2) / 2³², never zero; the angle is b / 2³² of a turn.
    """
    radius = _f32(math.sqrt(_MINUS_TWO * natural_log(_f32(a) * _TO_UNIT + _HALF_STEP)))
    quadrant = _u32(_u32(b + _u32(0x20000000)) >> _u32(30))
    t = _f32(_i32(_u32(b << _u32(2)))) * _TO_UNIT
    z = t * t
    sine = bits_of_float(t * ((((_S4 * z + _S3) * z + _S2) * z + _S1) * z + _S0))
    cosine = bits_of_float((((_C4 * z + _C3) * z + _C2) * z + _C1) * z + _C0)
    swapped = _u32(_u32(0) - _u32(quadrant & _u32(1)))
    kept = _u32(~swapped)
    x = _u32((cosine & kept) | (sine & swapped))
    y = _u32((sine & kept) | (cosine & swapped))
    sign_x = _u32(_u32(_u32(quadrant + _u32(1)) & _u32(2)) << _u32(30))
    sign_y = _u32(_u32(quadrant & _u32(2)) << _u32(30))
    return radius * float_from_bits(_u32(x ^ sign_x)), radius * float_from_bits(_u32(y ^ sign_y))
