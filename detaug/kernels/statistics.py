"""Minimum, maximum, mean and standard deviation of float32 arrays: the same on every CPU.

Sums run in 256 float64 lanes: value i goes to lane i modulo 256, and the lanes are added up from
the first to the last.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from detaug.kernels.compiling import inlined, kernel

LANES = 256
# Rows of lanes whose minima and maxima are found in one go.
_ROWS = 4
# Lanes of `least_and_largest`, which stay in registers.
_RANGE_LANES = 64

_f64 = np.float64


@inlined
def add_to_lanes(values: Any, pivot: Any, sums: Any, squares: Any) -> None:
    """Add up to `LANES` values less a pivot, and their squares, each to its own lane.

    With a pivot near the mean, the squares' sum loses few bits when the mean's is subtracted.

    Args:
        values: float32.
        pivot: float64.
        sums, squares: (LANES,) float64.
    """
    for i in range(values.shape[0]):
        deviation = _f64(values[i]) - pivot
        sums[i] += deviation
        squares[i] += deviation * deviation


@inlined
def mean_and_deviation(sums: Any, squares: Any, pivot: Any, count: Any) -> Any:
    """Return mean and standard deviation of the values that were added to the lanes.

    The deviation is that of a sample: divided by count - 1; 0 for one value.
    """
    # From the first lane to the last: any other order would be rounded otherwise.
    total = 0.0
    total_of_squares = 0.0
    for lane in range(LANES):
        total += sums[lane]
        total_of_squares += squares[lane]
    mean = total / count
    squares_around_mean = total_of_squares - total * mean
    # Rounding may make a sum of squares negative.
    if squares_around_mean < 0.0:
        squares_around_mean = 0.0
    return pivot + mean, math.sqrt(squares_around_mean / max(count - 1, 1))


@inlined
def _widen_by_rows(values: Any, lowest: Any, highest: Any) -> None:
    """Widen the least and the largest of each lane by `_ROWS` values each.

    With one value at a time the compiler makes a store on a condition, and no vectors.

    Args:
        values: (_ROWS * LANES,) float32.
        lowest, highest: (LANES,) float32.
    """
    for i in range(LANES):
        a = values[i]
        b = values[LANES + i]
        c = values[2 * LANES + i]
        d = values[3 * LANES + i]
        lowest[i] = min(lowest[i], a, b, c, d)
        highest[i] = max(highest[i], a, b, c, d)


@kernel("UniTuple(float64, 4)(float32[::1])")
def moments(values: Any) -> Any:
    """Return minimum, maximum, mean and standard deviation.

    The mean is not finite where one of the values is not.
    """
    sums = np.zeros(LANES)
    squares = np.zeros(LANES)
    lowest = np.full(LANES, values[0], np.float32)
    highest = np.full(LANES, values[0], np.float32)
    # Sums around one of the values: 0 may be far from the mean, and would cost precision.
    pivot = _f64(values[0])
    count = values.shape[0]
    for start in range(0, count, _ROWS * LANES):
        rows = values[start : start + _ROWS * LANES]
        whole = rows.shape[0] == _ROWS * LANES
        if whole:
            _widen_by_rows(rows, lowest, highest)
        for first in range(0, rows.shape[0], LANES):
            piece = rows[first : first + LANES]
            add_to_lanes(piece, pivot, sums, squares)
            if whole:
                continue
            for i in range(piece.shape[0]):
                lowest[i] = min(lowest[i], piece[i])
                highest[i] = max(highest[i], piece[i])
    # min and max may lose a NaN, which the mean keeps.
    low = lowest[0]
    high = highest[0]
    for lane in range(1, LANES):
        low = min(low, lowest[lane])
        high = max(high, highest[lane])
    mean, deviation = mean_and_deviation(sums, squares, pivot, count)
    return _f64(low), _f64(high), mean, deviation


@kernel("UniTuple(float64, 2)(float32[:,::1], float64)")
def deviations(values: Any, pivot: Any) -> Any:
    """Return mean and standard deviation of all channels together.

    Args:
        values: (C, voxels) float32.
        pivot: a guess at the mean.
    """
    sums = np.zeros(LANES)
    squares = np.zeros(LANES)
    for channel in values:
        for start in range(0, channel.shape[0], LANES):
            add_to_lanes(channel[start : start + LANES], pivot, sums, squares)
    return mean_and_deviation(sums, squares, pivot, values.size)


@kernel("UniTuple(float32, 2)(float32[:,::1])")
def least_and_largest(volume: Any) -> Any:
    """Return the least and the largest value of a volume (X, Y * Z); NaN counts as neither."""
    flat = volume.reshape(-1)
    low = np.full(_RANGE_LANES, np.float32(np.inf), np.float32)
    high = np.full(_RANGE_LANES, np.float32(-np.inf), np.float32)
    whole = flat.shape[0] // _RANGE_LANES
    for block in range(whole):
        # Unsigned: a signed index would be tested for its sign.
        first = np.uint64(block * _RANGE_LANES)
        for lane in range(np.uint64(_RANGE_LANES)):
            # Compared so that NaN is neither less nor greater.
            x = flat[first + lane]
            low[lane] = x if x < low[lane] else low[lane]
            high[lane] = x if x > high[lane] else high[lane]
    for i in range(whole * _RANGE_LANES, flat.shape[0]):
        x = flat[i]
        low[0] = x if x < low[0] else low[0]
        high[0] = x if x > high[0] else high[0]
    least = low[0]
    largest = high[0]
    for lane in range(1, _RANGE_LANES):
        least = min(least, low[lane])
        largest = max(largest, high[lane])
    return least, largest
