"""Minimum, maximum, mean, standard deviation and order statistics of float32 arrays: the same on every CPU.

Sums run in 256 float64 lanes: value i goes to lane i modulo 256, and the lanes are added up from the first to the last.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from detaug.kernels.compiling import inlined, kernel
from detaug.kernels.elementary import bits_of_float, float_from_bits

LANES = 256

_f32 = np.float32
_f64 = np.float64
_u32 = np.uint32
_SIGN = _u32(0x80000000)
_HALF = _u32(0xFFFF)


@inlined
def add_to_lanes(values: Any, pivot: Any, sums: Any, squares: Any) -> None:
    """Add up to `LANES` values less a pivot, and their squares, each to its own lane."""
    for i in range(values.shape[0]):
        deviation = _f64(values[i]) - pivot
        sums[i] += deviation
        squares[i] += deviation * deviation


@inlined
def mean_and_deviation(sums: Any, squares: Any, pivot: Any, count: Any) -> Any:
    """Mean and standard deviation (of a sample: divided by count - 1; 0 for one value) of what is in the lanes."""
    total = 0.0
    total_of_squares = 0.0
    for lane in range(LANES):
        total += sums[lane]
        total_of_squares += squares[lane]
    mean = total / count
    around_the_mean = total_of_squares - total * mean
    if around_the_mean < 0.0:
        around_the_mean = 0.0
    return pivot + mean, math.sqrt(around_the_mean / max(count - 1, 1))


@kernel("UniTuple(float64, 4)(float32[::1])")
def moments(values: Any) -> Any:
    """Minimum, maximum, mean and standard deviation; the mean is not finite where one of the values is not."""
    sums = np.zeros(LANES)
    squares = np.zeros(LANES)
    lowest = np.full(LANES, values[0], np.float32)
    highest = np.full(LANES, values[0], np.float32)
    pivot = _f64(values[0])
    count = values.shape[0]
    for start in range(0, count, LANES):
        piece = values[start : start + LANES]
        add_to_lanes(piece, pivot, sums, squares)
        for i in range(piece.shape[0]):
            value = piece[i]
            lowest[i] = value if value < lowest[i] else lowest[i]
            highest[i] = value if value > highest[i] else highest[i]
    low, high = lowest[0], highest[0]
    for lane in range(1, LANES):
        low = lowest[lane] if lowest[lane] < low else low
        high = highest[lane] if highest[lane] > high else high
    mean, deviation = mean_and_deviation(sums, squares, pivot, values.shape[0])
    return _f64(low), _f64(high), mean, deviation


@kernel("float64(float32[::1])")
def mean(values: Any) -> Any:
    """The mean, as `moments` has it; not finite where one of the values is not."""
    sums = np.zeros(LANES)
    pivot = _f64(values[0])
    for start in range(0, values.shape[0], LANES):
        piece = values[start : start + LANES]
        for i in range(piece.shape[0]):
            sums[i] += _f64(piece[i]) - pivot
    total = 0.0
    for lane in range(LANES):
        total += sums[lane]
    return pivot + total / values.shape[0]


@inlined
def _order(value: Any) -> Any:
    """An unsigned integer for each float, in the same order; both zeros have one."""
    bits = bits_of_float(value + _f32(0))
    return _u32(~bits) if bits & _SIGN else _u32(bits | _SIGN)


@inlined
def _value(order: Any) -> Any:
    return float_from_bits(_u32(order & ~_SIGN)) if order & _SIGN else float_from_bits(_u32(~order))


@kernel("void(float32[::1], int64[::1], float32[::1])")
def order_statistics(values: Any, ranks: Any, out: Any) -> None:
    """The values that stand at these ranks (0 is the smallest) once sorted, exactly; NaN if there is one among them
    all.

    Counts the upper and then the lower 16 bits of what `_order` gives.
    """
    upper = np.zeros(65536, np.int64)
    has_nan = False
    for i in range(values.shape[0]):
        has_nan |= values[i] != values[i]
        upper[_order(values[i]) >> _u32(16)] += 1
    lower = np.zeros(65536, np.int64)
    counted_for = -1
    for n in range(ranks.shape[0]):
        rest = ranks[n]
        bucket = 0
        while rest >= upper[bucket]:
            rest -= upper[bucket]
            bucket += 1
        if bucket != counted_for:
            lower[:] = 0
            for i in range(values.shape[0]):
                order = _order(values[i])
                if order >> _u32(16) == bucket:
                    lower[order & _HALF] += 1
            counted_for = bucket
        place = 0
        while rest >= lower[place]:
            rest -= lower[place]
            place += 1
        out[n] = np.nan if has_nan else _value(_u32(_u32(bucket << 16) | _u32(place)))
