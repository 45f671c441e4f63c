"""The range of a volume's values, and their limitation to a range. Volumes are float32 (X, Y * Z)."""

from __future__ import annotations

from typing import Any

import numpy as np

from detaug.kernels.compiling import inlined, kernel

_LANES = 64


@kernel("UniTuple(float32, 2)(float32[:,::1])")
def least_and_largest(volume: Any) -> Any:
    """The least and the largest value; NaN counts as neither."""
    flat = volume.reshape(-1)
    low = np.full(_LANES, np.float32(np.inf), np.float32)
    high = np.full(_LANES, np.float32(-np.inf), np.float32)
    whole = flat.shape[0] // _LANES
    for block in range(whole):
        at = np.uint64(block * _LANES)
        for lane in range(np.uint64(_LANES)):
            x = flat[at + lane]
            low[lane] = x if x < low[lane] else low[lane]
            high[lane] = x if x > high[lane] else high[lane]
    for i in range(whole * _LANES, flat.shape[0]):
        x = flat[i]
        low[0] = min(low[0], x) if x == x else low[0]
        high[0] = max(high[0], x) if x == x else high[0]
    least, largest = low[0], high[0]
    for lane in range(1, _LANES):
        least = min(least, low[lane])
        largest = max(largest, high[lane])
    return least, largest


@inlined
def _within(x: Any, low: Any, high: Any) -> Any:
    """x, but not below low or above high; NaN stays NaN."""
    above = low if x < low else x
    return high if above > high else above


@kernel("void(float32[:,::1], float32[:,::1], float32, float32)")
def clamp(source: Any, destination: Any, low: Any, high: Any) -> None:
    """Limit all values to low ... high."""
    flat, out = source.reshape(-1), destination.reshape(-1)
    for i in range(flat.shape[0]):
        out[i] = _within(flat[i], low, high)
