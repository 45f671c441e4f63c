"""Maps of intensities that are straight between evenly spaced knots."""

from __future__ import annotations

from typing import Any

import numpy as np

from detaug.kernels.compiling import inlined, kernel

_f32 = np.float32
_f64 = np.float64


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
    # two loops, for the compiler's test that the arrays do not overlap fails where they are one
    if in_place:
        for i in range(destination.shape[0]):
            destination[i] = _mapped(destination[i], low, per_step, last, knots, values, slopes)
    else:
        for i in range(destination.shape[0]):
            destination[i] = _mapped(source[i], low, per_step, last, knots, values, slopes)
