"""Nearest-neighbour sampling down and linear interpolation back up in one pass, in place if wanted.

A voxel of the output lies between two planes, two rows and two columns of the coarse image, each of which is one of the
source's. Coarse planes are made when they are first needed, already interpolated along their own two axes, and two of
them are kept.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from detaug.kernels.compiling import inlined, kernel


@inlined
def _interpolated(rows: Any, first: Any, second: Any, weight: Any, out: Any, start: Any, n: Any) -> None:
    a, b, s = np.uint64(first), np.uint64(second), np.uint64(start)
    for k in range(np.uint64(n)):
        out[s + k] = rows[a + k] + weight * (rows[b + k] - rows[a + k])


@inlined
def _line(source: Any, start: Any, nearest2: Any, lower2: Any, weight2: Any, coarse: Any, out: Any, slot: Any) -> None:
    """A line at the coarse resolution and back."""
    last = nearest2.shape[0] - 1
    for k in range(last + 1):
        coarse[k] = source[start + nearest2[k]]
    coarse[last + 1] = coarse[last]
    at = np.uint64(slot)
    for k in range(np.uint64(lower2.shape[0])):
        low = np.uint64(lower2[k])
        out[at + k] = coarse[low] + weight2[k] * (coarse[low + np.uint64(1)] - coarse[low])


@kernel(
    "void(float32[:,::1], float32[:,::1], int64[::1], int64[::1], float32[::1], int64[::1], int64[::1], float32[::1], "
    "int64[::1], int64[::1], float32[::1])"
)
def down_and_up(
    source: Any, destination: Any, nearest0: Any, lower0: Any, weight0: Any, nearest1: Any, lower1: Any, weight1: Any,
    nearest2: Any, lower2: Any, weight2: Any,
) -> None:  # fmt: skip
    """Sample a volume down and interpolate it up again.

    Args:
        source, destination: float32 (X, Y * Z). They may be one array if plane ``nearest0[c]`` is never behind
            the first output plane that needs coarse plane c.
        nearest: for each axis and coarse voxel, the source's voxel.
        lower, weight: for each axis and output voxel, the coarse voxel before it and the weight of the next one
            (the last one's next is itself).
    """
    n0, n1, n2 = lower0.shape[0], lower1.shape[0], lower2.shape[0]
    size = n1 * n2
    planes = np.empty(2 * size, np.float32)
    rows = np.empty(2 * n2, np.float32)
    coarse = np.empty(nearest2.shape[0] + 1, np.float32)
    planes_ready = 0
    for i in range(n0):
        last = min(lower0[i] + 1, nearest0.shape[0] - 1)
        while planes_ready <= last:
            plane = source[nearest0[planes_ready]]
            slot = (planes_ready % 2) * size
            rows_ready = 0
            for j in range(n1):
                second = min(lower1[j] + 1, nearest1.shape[0] - 1)
                while rows_ready <= second:
                    start = nearest1[rows_ready] * n2
                    _line(plane, start, nearest2, lower2, weight2, coarse, rows, (rows_ready % 2) * n2)
                    rows_ready += 1
                a, b = (lower1[j] % 2) * n2, (second % 2) * n2
                _interpolated(rows, a, b, weight1[j], planes, slot + j * n2, n2)
            planes_ready += 1
        a, b = (lower0[i] % 2) * size, (last % 2) * size
        _interpolated(planes, a, b, weight0[i], destination[i], 0, size)
