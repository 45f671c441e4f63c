"""Maps of intensities, voxel by voxel.

Source and destination may be one array, or must not overlap.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from detaug.kernels.compiling import inlined, kernel
from detaug.kernels.elementary import exponential

_f32 = np.float32
_f64 = np.float64


@kernel("void(float32[::1], float32, float32)")
def clamp(values: Any, low: Any, high: Any) -> None:
    """Limit values to low ... high (high wins); NaN stays NaN."""
    for i in range(values.shape[0]):
        above = low if values[i] < low else values[i]
        values[i] = high if above > high else above


@kernel("void(float32[::1], float32[::1], float32, float32, float32)")
def scale_around(source: Any, destination: Any, center: Any, factor: Any, offset: Any) -> None:
    """Write ``(source - center) · factor + offset``; source and destination may be one array."""
    # Two loops: where both arrays are one, the compiler's test that they do not overlap fails, and
    # the loop behind it uses no vectors.
    if source.ctypes.data == destination.ctypes.data:
        for i in range(destination.shape[0]):
            destination[i] = (destination[i] - center) * factor + offset
    else:
        for i in range(destination.shape[0]):
            destination[i] = (source[i] - center) * factor + offset


@inlined
def _field(line: Any, z: Any, sums: Any, field: Any) -> None:
    """Write exp of a line's polynomial, by Horner's scheme in float64.

    Args:
        line: the coefficients of the powers of z.
        z: positions along the line.
        sums: (voxels,) float64, memory.
        field: (voxels,) float32, the result.
    """
    highest = line.shape[0] - 1
    for k in range(z.shape[0]):
        sums[k] = line[highest]
    for power in range(highest - 1, -1, -1):
        coefficient = line[power]
        for k in range(z.shape[0]):
            sums[k] = sums[k] * z[k] + coefficient
    for k in range(z.shape[0]):
        # What the sum loses as float32 is made up for: e^(h + r) = e^h (1 + r) where r is below
        # half an ulp of h.
        rounded = _f32(sums[k])
        rest = _f32(sums[k] - _f64(rounded))
        value = exponential(rounded)
        field[k] = value + value * rest


@kernel(
    "void(float32[:,::1], float32[:,::1], float64[:,:,::1], float64[::1], float64[::1],"
    " float64[::1])"
)
def multiply_by_field(
    source: Any, destination: Any, coefficients: Any, x: Any, y: Any, z: Any
) -> None:
    """Write ``source[i, j, k] * exp(Σ coefficients[a, b, c] x[i]^a y[j]^b z[k]^c)``.

    Args:
        source, destination: (X, Y * Z), float32; they may be one array.
        coefficients: float64, one for each three powers.
        x, y, z: float64, the voxels' positions along the axes.
    """
    n0, n1, n2 = coefficients.shape
    length = z.shape[0]
    plane = np.empty((n1, n2))
    line = np.empty(n2)
    sums = np.empty(length)
    field = np.empty(length, np.float32)
    for i in range(x.shape[0]):
        # Horner's scheme in x for each plane, in y for each line, in z for each voxel.
        for b in range(n1):
            for c in range(n2):
                total = coefficients[n0 - 1, b, c]
                for a in range(n0 - 2, -1, -1):
                    total = total * x[i] + coefficients[a, b, c]
                plane[b, c] = total
        for j in range(y.shape[0]):
            for c in range(n2):
                total = plane[n1 - 1, c]
                for b in range(n1 - 2, -1, -1):
                    total = total * y[j] + plane[b, c]
                line[c] = total
            _field(line, z, sums, field)
            start = j * length
            line_in = source[i, start : start + length]
            result = destination[i, start : start + length]
            # In two loops, since the compiler does not know that line and result are one array, or
            # do not overlap.
            for k in range(length):
                field[k] = line_in[k] * field[k]
            for k in range(length):
                result[k] = field[k]
