"""Maps of intensities, voxel by voxel. Arrays are flat; source and destination may be one array, or must not overlap.

Where a map says in_place, it runs one of two loops, for the compiler's test that the arrays do not overlap fails, and
with it the use of vectors, where they are one.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from detaug.kernels.compiling import inlined, kernel
from detaug.kernels.elementary import unit_power
from detaug.kernels.normals import PIECE, fill_piece
from detaug.kernels.statistics import LANES, add_to_lanes, mean_and_deviation

_f32 = np.float32


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


@kernel("void(float32[::1], float32, float32, float32)")
def scale_around(values: Any, center: Any, factor: Any, offset: Any) -> None:
    """``(values - center) · factor + offset``, in place."""
    for i in range(values.shape[0]):
        values[i] = (values[i] - center) * factor + offset


@inlined
def _add_piece(values: Any, pivot: Any, sums: Any, squares: Any) -> None:
    for start in range(0, values.shape[0], LANES):
        add_to_lanes(values[start : start + LANES], pivot, sums, squares)


@inlined
def _curve_of_piece(source: Any, origin: Any, width: Any, exponent: Any, out: Any) -> None:
    for i in range(source.shape[0]):
        out[i] = unit_power((source[i] - origin) / width, exponent)


@kernel("void(float32[::1], float32[::1], float32, float32, float32, float32, float32)")
def gamma_curve(
    source: Any, destination: Any, origin: Any, width: Any, exponent: Any, factor: Any, offset: Any
) -> None:
    """``((source - origin) / width) ^ exponent · factor + offset``; all bases must be from 0 to 1."""
    curve = np.empty(PIECE, np.float32)
    for start in range(0, source.shape[0], PIECE):
        result = destination[start : start + PIECE]
        _curve_of_piece(source[start : start + PIECE], origin, width, exponent, curve)
        for i in range(result.shape[0]):
            result[i] = curve[i] * factor + offset


@inlined
def _add_whole_piece(values: Any, pivot: Any, sums: Any, squares: Any) -> None:
    """As `_add_piece`, of exactly `PIECE` values, four of which are added in float32 before they go to their lane.

    With a pivot next to the mean, float32 loses nothing that matters.
    """
    for i in range(LANES):
        a = values[i] - pivot
        b = values[LANES + i] - pivot
        c = values[2 * LANES + i] - pivot
        d = values[3 * LANES + i] - pivot
        sums[i] += np.float64((a + b) + (c + d))
        squares[i] += np.float64((a * a + b * b) + (c * c + d * d))


@kernel("UniTuple(float64, 2)(float32[::1], float32[::1], float32, float32, float32, float32)")
def measured_gamma_curve(source: Any, destination: Any, origin: Any, width: Any, exponent: Any, pivot: Any) -> Any:
    """`gamma_curve` without factor and offset; gives the mean and standard deviation of what it wrote.

    The pivot is a guess at that mean.
    """
    curve = np.empty(PIECE, np.float32)
    sums = np.zeros(LANES)
    squares = np.zeros(LANES)
    for start in range(0, source.shape[0], PIECE):
        result = destination[start : start + PIECE]
        _curve_of_piece(source[start : start + PIECE], origin, width, exponent, curve)
        if result.shape[0] == PIECE:
            _add_whole_piece(curve, pivot, sums, squares)
        else:
            _add_piece(curve[: result.shape[0]], np.float64(pivot), sums, squares)
        for i in range(result.shape[0]):
            result[i] = curve[i]
    return mean_and_deviation(sums, squares, np.float64(pivot), source.shape[0])


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
