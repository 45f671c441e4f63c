"""Fields of standard normals from `threefry`: normal 4 i + j comes from block i, two from each pair of words."""

from __future__ import annotations

from typing import Any

import numpy as np

from detaug.kernels.compiling import kernel
from detaug.kernels.elementary import normal_pair
from detaug.kernels.threefry import block


@kernel("void(float32[::1], float32[::1], float32, uint32, uint32, uint32)")
def add_normals(source: Any, destination: Any, scale: Any, key_low: Any, key_high: Any, stream: Any) -> None:
    """``destination = source + scale * normals`` (flat arrays of one length, which may be one array)."""
    zero = np.uint32(0)
    whole = source.shape[0] // 4
    for i in range(whole):
        a, b, c, d = block(np.uint32(i), stream, zero, zero, key_low, key_high, zero, zero)
        p, q = normal_pair(a, b)
        r, s = normal_pair(c, d)
        destination[4 * i] = source[4 * i] + scale * p
        destination[4 * i + 1] = source[4 * i + 1] + scale * q
        destination[4 * i + 2] = source[4 * i + 2] + scale * r
        destination[4 * i + 3] = source[4 * i + 3] + scale * s
    if 4 * whole < source.shape[0]:
        a, b, c, d = block(np.uint32(whole), stream, zero, zero, key_low, key_high, zero, zero)
        p, q = normal_pair(a, b)
        r, _ = normal_pair(c, d)
        last = (p, q, r)
        for j in range(source.shape[0] - 4 * whole):
            destination[4 * whole + j] = source[4 * whole + j] + scale * last[j]
