"""Coarse slices along one axis, and linear interpolation between them back to the axis' voxels.

A coarse slice is a weighted sum of neighbouring voxels. Each block of rows, or each line, is finished before the next one
begins, so that source and destination may be one array.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from detaug.kernels.compiling import inlined, kernel

_BLOCK = 512  # floats of a row; all coarse rows of a block fit into a CPU's second cache

_TABLES = "int64[::1], int64[::1], float32[::1], int64[::1], float32[::1]"


@inlined
def _blend(a: Any, b: Any, weight: Any, out: Any) -> None:
    rest = np.float32(1) - weight
    for k in range(out.shape[0]):
        out[k] = a[k] * rest + b[k] * weight


@kernel(f"void(float32[:,:,::1], float32[:,:,::1], {_TABLES})")
def slices_of_rows(
    source: Any, destination: Any, first: Any, offsets: Any, shares: Any, lower: Any, weight: Any
) -> None:
    """Along the middle axis of (outer, n, inner), whose rows are long.

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
                a, b = coarse[lower[i]], coarse[min(lower[i] + 1, count - 1)]
                _blend(a, b, weight[i], destination[o, i, start:end])


@kernel(f"void(float32[:,::1], float32[:,::1], {_TABLES})")
def slices_of_lines(
    source: Any, destination: Any, first: Any, offsets: Any, shares: Any, lower: Any, weight: Any
) -> None:
    """Along the last axis of (lines, n); see `slices_of_rows`."""
    count = first.shape[0]
    coarse = np.empty(count + 1, np.float32)
    for i in range(source.shape[0]):
        line, out = source[i], destination[i]
        for c in range(count):
            total = line[first[c]] * shares[offsets[c]]
            for n in range(1, offsets[c + 1] - offsets[c]):
                total += line[first[c] + n] * shares[offsets[c] + n]
            coarse[c] = total
        coarse[count] = coarse[count - 1]
        for k in range(np.uint64(lower.shape[0])):
            low = np.uint64(lower[k])
            out[k] = coarse[low] * (np.float32(1) - weight[k]) + coarse[low + np.uint64(1)] * weight[k]
