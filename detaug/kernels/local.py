"""Intensity changes weighted by a window (`detaug.kernels.windows`), which is evaluated line by line.

Volumes are float32 (X, Y * Z); source and destination may be one array. A window comes as its factors along X and Y,
its ``drop2`` along Z (whose length is Z) and its least product.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from detaug.kernels.compiling import inlined, kernel
from detaug.kernels.elementary import unit_power
from detaug.kernels.windows import Window, window_line, windowed

_WINDOW = "float64[::1], float64[::1], float32[::1], float64"


@kernel(f"float64(float32[:,::1], {_WINDOW})")
def windowed_sum(volume: Any, factors0: Any, factors1: Any, drop2: Any, least: Any) -> Any:
    """The sum of voxel times window, in float64: one sum for each column of lines, and then these one after another."""
    n2 = drop2.shape[0]
    sums = np.zeros(n2, np.float64)
    for i in range(factors0.shape[0]):
        plane = volume[i]
        for j in range(factors1.shape[0]):
            start, slope = window_line(factors0[i], factors1[j], least, 0.0, 1.0)
            at = np.uint64(j * n2)
            for k in range(np.uint64(n2)):
                sums[k] += np.float64(plane[at + k]) * np.float64(start + slope * drop2[k])
    total = 0.0
    for k in range(n2):
        total += sums[k]
    return total


@windowed
@inlined
def _add(x: Any, share: Any, _at: Any, _given: Any) -> Any:
    return x + share


@windowed
@inlined
def _scale_about(x: Any, share: Any, _at: Any, middle: Any) -> Any:
    return x + share * (x - middle)


@windowed
@inlined
def _blend_power(x: Any, share: Any, _at: Any, given: Any) -> Any:
    exponent, low, extent = given
    relative = (x - low) / extent
    return x + extent * (share * (unit_power(relative, exponent) - relative))


@kernel(f"void(float32[:,::1], float32[:,::1], {_WINDOW}, float64, float64)")
def add_window(
    source: Any, destination: Any, factors0: Any, factors1: Any, drop2: Any, least: Any, offset: Any, strength: Any
) -> None:
    """``x + offset + strength * window``."""
    window = Window(factors0, factors1, drop2, least)
    for i in range(factors0.shape[0]):
        _add(source[i], destination[i], window, i, offset, strength, 0)


@kernel(f"void(float32[:,::1], float32[:,::1], {_WINDOW}, float64, float32)")
def scale_about(
    source: Any, destination: Any, factors0: Any, factors1: Any, drop2: Any, least: Any, strength: Any, middle: Any
) -> None:
    """``x + strength * window * (x - middle)``."""
    window = Window(factors0, factors1, drop2, least)
    for i in range(factors0.shape[0]):
        _scale_about(source[i], destination[i], window, i, 0.0, strength, middle)


@kernel(f"void(float32[:,::1], float32[:,::1], {_WINDOW}, float32, float32, float32)")
def blend_power(
    source: Any, destination: Any, factors0: Any, factors1: Any, drop2: Any, least: Any, exponent: Any, low: Any,
    extent: Any,
) -> None:  # fmt: skip
    """``x + extent * window * (r^exponent - r)`` with ``r = (x - low) / extent``."""
    window = Window(factors0, factors1, drop2, least)
    for i in range(factors0.shape[0]):
        _blend_power(source[i], destination[i], window, i, 0.0, 1.0, (exponent, low, extent))
