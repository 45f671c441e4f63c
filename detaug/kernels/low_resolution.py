"""Coarse images and linear interpolation back up, in place if wanted: `down_and_up` along all axes, of the nearest voxels;
`slices_of_rows` along one, of weighted sums of neighbouring voxels.

A voxel of the output lies between two planes, two rows and two columns of the coarse image, each of which is one of the
source's. Coarse planes are made when they are first needed, already interpolated along their own two axes, and two of
them are kept.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from detaug.kernels.compiling import inlined, kernel

_BLOCK = 512  # floats of a row; all coarse rows of a block fit into a CPU's second cache


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


@kernel("void(float32[:,:,::1], float32[:,:,::1], int64[::1], int64[::1], float32[::1], int64[::1], float32[::1])")
def slices_of_rows(
    source: Any, destination: Any, first: Any, offsets: Any, shares: Any, lower: Any, weight: Any
) -> None:
    """Coarse slices along the middle axis of (outer, n, inner).

    Each block of rows is finished before the next one begins: source and destination may be one array.

    Args:
        first: for each coarse slice, its first voxel.
        offsets: where its voxels' shares begin in ``shares``; one more at the end.
        lower, weight: for each voxel, the coarse slice before it and the weight of the next one (the last one's next is
            itself).
    """
    count, inner = first.shape[0], source.shape[2]
    coarse = np.empty((count, min(_BLOCK, inner)), np.float32)
    for o in range(source.shape[0]):
        for start in range(0, inner, _BLOCK):
            end = min(start + _BLOCK, inner)
            for c in range(count):
                out = coarse[c, : end - start]
                row = source[o, first[c], start:end]
                share = shares[offsets[c]]
                for k in range(out.shape[0]):
                    out[k] = row[k] * share
                for n in range(1, offsets[c + 1] - offsets[c]):
                    row = source[o, first[c] + n, start:end]
                    share = shares[offsets[c] + n]
                    for k in range(out.shape[0]):
                        out[k] += row[k] * share
            for i in range(lower.shape[0]):
                a, b, out = coarse[lower[i]], coarse[min(lower[i] + 1, count - 1)], destination[o, i, start:end]
                share, rest = weight[i], np.float32(1) - weight[i]
                for k in range(out.shape[0]):
                    out[k] = a[k] * rest + b[k] * share
