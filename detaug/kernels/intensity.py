"""Maps of intensities, voxel by voxel. Arrays are flat; source and destination may be one array, or must not overlap.

Where a map says in_place, it runs one of two loops, for the compiler's test that the arrays do not overlap fails, and
with it the use of vectors, where they are one.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from detaug.kernels.compiling import inlined, kernel
from detaug.kernels.normals import fill_piece
from detaug.kernels.statistics import LANES, add_to_lanes, mean_and_deviation
from detaug.kernels.threefry import PIECE

_f32 = np.float32
_f64 = np.float64


@inlined
def _stretched(value: Any, center: Any, factor: Any, low: Any, high: Any) -> Any:
    result = (value - center) * factor + center
    result = low if result < low else result
    return high if result > high else result


@kernel("void(float32[::1], float32[::1], float32, float32, float32, float32)")
def stretch(source: Any, destination: Any, center: Any, factor: Any, low: Any, high: Any) -> None:
    """``(source - center) · factor + center``, clamped to low ... high."""
    in_place = source.ctypes.data == destination.ctypes.data
    if in_place:
        for i in range(destination.shape[0]):
            destination[i] = _stretched(destination[i], center, factor, low, high)
    else:
        for i in range(destination.shape[0]):
            destination[i] = _stretched(source[i], center, factor, low, high)


@kernel("void(float32[::1], float32[::1], float32, float32, float32)")
def scale_around(source: Any, destination: Any, center: Any, factor: Any, offset: Any) -> None:
    """``(source - center) · factor + offset``; both may be one array."""
    if source.ctypes.data == destination.ctypes.data:
        for i in range(destination.shape[0]):
            destination[i] = (destination[i] - center) * factor + offset
    else:
        for i in range(destination.shape[0]):
            destination[i] = (source[i] - center) * factor + offset


@inlined
def _add_piece(values: Any, pivot: Any, sums: Any, squares: Any) -> None:
    for start in range(0, values.shape[0], LANES):
        add_to_lanes(values[start : start + LANES], pivot, sums, squares)


@kernel("UniTuple(float64, 2)(float32[::1], float32[::1], float32, float32)")
def measured_clamp(source: Any, destination: Any, low: Any, high: Any) -> Any:
    """The source clamped to low ... high (high wins); gives the mean and standard deviation of what it wrote."""
    clamped = np.empty(LANES, np.float32)
    sums = np.zeros(LANES)
    squares = np.zeros(LANES)
    pivot = np.float64(low)
    for start in range(0, source.shape[0], LANES):
        result = destination[start : start + LANES]
        given = source[start : start + LANES]
        for i in range(result.shape[0]):
            value = low if given[i] < low else given[i]
            clamped[i] = high if value > high else value
        add_to_lanes(clamped[: result.shape[0]], pivot, sums, squares)
        for i in range(result.shape[0]):
            result[i] = clamped[i]
    return mean_and_deviation(sums, squares, pivot, source.shape[0])


@kernel("UniTuple(float64, 2)(float32[:, ::1], float32[:, ::1], float32, float32, uint32, uint32)")
def measured_rician(source: Any, destination: Any, lowest: Any, scale: Any, key_low: Any, key_high: Any) -> Any:
    """``√((source - lowest + scale · real)² + (scale · imaginary)²)`` of all channels (C, voxels), real and imaginary
    being the normals of streams 2 c and 2 c + 1; gives the mean and standard deviation of all that it wrote.
    """
    real = np.empty(PIECE, np.float32)
    imaginary = np.empty(PIECE, np.float32)
    sums = np.zeros(LANES)
    squares = np.zeros(LANES)
    pivot = np.float64(source[0, 0]) - np.float64(lowest)
    channels, voxels = source.shape
    for c in range(channels):
        for piece in range((voxels + PIECE - 1) // PIECE):
            fill_piece(real, piece, np.uint32(2 * c), key_low, key_high)
            fill_piece(imaginary, piece, np.uint32(2 * c + 1), key_low, key_high)
            given = source[c, piece * PIECE : (piece + 1) * PIECE]
            result = destination[c, piece * PIECE : (piece + 1) * PIECE]
            for i in range(given.shape[0]):
                a = (given[i] - lowest) + scale * real[i]
                b = scale * imaginary[i]
                real[i] = _f32(math.sqrt(a * a + b * b))
            _add_piece(real[: given.shape[0]], pivot, sums, squares)
            for i in range(result.shape[0]):
                result[i] = real[i]
    return mean_and_deviation(sums, squares, pivot, channels * voxels)


@inlined
def _mapped(x: Any, low: Any, per_step: Any, last: Any, knots: Any, values: Any, slopes: Any) -> Any:
    step = (x - low) * per_step
    step = step if step < last else last  # NaN too
    at = np.uint64(np.int32(step))
    return _f32(values[at] + _f64(x - knots[at]) * slopes[at])


@kernel("void(float32[::1], float32[::1], float32, float32, float32[::1], float64[::1], float64[::1])")
def map_piecewise(source: Any, destination: Any, low: Any, per_step: Any, knots: Any, values: Any, slopes: Any) -> None:
    """``values[s] + (x - knots[s]) * slopes[s]`` in float64 where s is the piece in which x lies; NaN stays NaN.

    Args:
        source, destination: flat, of values from ``low`` on; they may be one array.
        per_step: pieces per intensity unit.
        knots, values, slopes: one for each piece: where it begins, with which value, and how it rises.
    """
    last = _f32(knots.shape[0] - 1)
    in_place = source.ctypes.data == destination.ctypes.data
    if in_place:
        for i in range(destination.shape[0]):
            destination[i] = _mapped(destination[i], low, per_step, last, knots, values, slopes)
    else:
        for i in range(destination.shape[0]):
            destination[i] = _mapped(source[i], low, per_step, last, knots, values, slopes)
