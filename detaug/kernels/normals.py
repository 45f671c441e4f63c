"""Fields of standard normals from `threefry`, in pieces of 1024.

Normal ``1024 p + 256 j + i`` of a field (j from 0 to 3, i from 0 to 255) comes from block ``256 p +
i``: words 0 and 1 give those of j = 0 and 1, words 2 and 3 those of j = 2 and 3, by Box and
Muller's transform as `normal_pair` has it. So the fields of a small and of a large array under one
key begin alike.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from detaug.kernels.compiling import inlined, kernel
from detaug.kernels.elementary import bits_of_float, float_from_bits, negative_log
from detaug.kernels.threefry import LANES, PIECE, QUARTER, block

_f32 = np.float32
_i32 = np.int32
_u32 = np.uint32
_TO_UNIT = _f32(2.0**-32)
_HALF_STEP = _f32(2.0**-33)
_SIGN = _u32(0x80000000)

# sin(π t / 2) / t and cos(π t / 2) as polynomials of t², |t| <= 1/2; absolute errors 2^-27.6 and
# 2^-24.9.
_S0, _S1, _S2, _S3 = (_f32(c) for c in (1.57079625, -0.645961106, 0.0796605572, -0.00455603236))
_C0, _C1, _C2, _C3 = (_f32(c) for c in (1.0, -1.23369801, 0.253607005, -0.0204279609))


@inlined
def normal_pair(a: Any, b: Any) -> Any:
    """Return two standard normals from two uint32, by Box and Muller's transform (1958).

    With u = (a + 1/2) / 2³² and an angle φ, evenly spread in ± 45°, from the lower 30 bits of b,
    they are √(-ln u) (cos φ - sin φ) and √(-ln u) (cos φ + sin φ): √(-2 ln u) times cosine and sine
    of φ + 45°. The upper two bits of b are their signs.
    """
    # The half step keeps the argument above 0, whose logarithm is infinite.
    radius = _f32(math.sqrt(negative_log(_f32(a) * _TO_UNIT + _HALF_STEP)))
    # The lower 30 bits as a signed number from -1/2 to 1/2.
    t = _f32(_i32(_u32(b << _u32(2)))) * _TO_UNIT
    z = t * t
    sine = t * (((_S3 * z + _S2) * z + _S1) * z + _S0)
    cosine = ((_C3 * z + _C2) * z + _C1) * z + _C0
    # The signs are set by exclusive-or, because a choice would be a branch.
    x = bits_of_float(radius * (cosine - sine))
    y = bits_of_float(radius * (cosine + sine))
    sign_x = _u32(b & _SIGN)
    sign_y = _u32(_u32(b << _u32(1)) & _SIGN)
    return float_from_bits(_u32(x ^ sign_x)), float_from_bits(_u32(y ^ sign_y))


@kernel("void(float32[::1], float32[::1], float32, uint32, uint32, uint32)")
def add_normals(
    source: Any, destination: Any, scale: Any, key_low: Any, key_high: Any, stream: Any
) -> None:
    """Write ``destination = source + scale * normals``.

    Args:
        source, destination: flat, of one length; they may be one array.
        scale: the factor.
        key_low, key_high: from `key_words`.
        stream: of the field.
    """
    # A piece at a time, which stays in the first-level cache.
    normals = np.empty(PIECE, np.float32)
    zero = _u32(0)
    for begin in range(0, source.shape[0], PIECE):
        first = _u32(begin // PIECE * QUARTER)
        for i in range(QUARTER):
            a, b, c, d = block(
                _u32(first + LANES[i]), stream, zero, zero, key_low, key_high, zero, zero
            )
            normals[i], normals[QUARTER + i] = normal_pair(a, b)
            normals[2 * QUARTER + i], normals[3 * QUARTER + i] = normal_pair(c, d)
        piece_in = source[begin : begin + PIECE]
        result = destination[begin : begin + PIECE]
        # In two loops, since the compiler does not know that both arrays are one, or do not
        # overlap.
        for i in range(result.shape[0]):
            normals[i] = piece_in[i] + scale * normals[i]
        for i in range(result.shape[0]):
            result[i] = normals[i]
