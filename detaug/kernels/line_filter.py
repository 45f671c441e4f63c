"""Filters along one axis that are gains in k-space: lines are brought beside each other, transformed, and brought back.

A gain that depends on one axis' frequency alone is a filter along that axis: the transforms along the other axes and their
inverses cancel. So no volume of k-space is ever made; a few lines at a time stay in the first-level cache, and the volume
is read and written once.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from detaug.kernels.compiling import inlined, kernel
from detaug.kernels.fourier import axis_of, backward, forward
from detaug.kernels.lanes import LANES, columns_to_lines, everywhere, lines_to_columns, load, store

# Complex lines at a time, and 0; not plain integers, for each of which Numba would compile what is called once more.
_WIDTH, _ZERO = np.int64(32), np.int64(0)


@inlined
def _exchange(volume: Any, first: Any, count: Any, n: Any, inner: Any, starts: Any, work: Any, back: Any) -> None:
    """Bring lines ``first`` to ``first + count`` (excluded) of a flat volume beside each other, or back."""
    if inner == 1:
        if back:
            columns_to_lines(work, _ZERO, 2 * _WIDTH, starts, first * n, count, n, volume)
        else:
            lines_to_columns(volume, starts, first * n, count, n, work, _ZERO, 2 * _WIDTH)
        return
    c = 0
    while c < count:  # lines that are neighbours
        run = min(count - c, inner - (first + c) % inner)
        start = (first + c) // inner * n * inner + (first + c) % inner
        for r in range(n):
            a, b = np.uint64(start + r * inner), np.uint64(r * 2 * _WIDTH + c)
            if back:
                for k in range(np.uint64(run)):
                    volume[a + k] = work[b + k]
            else:
                for k in range(np.uint64(run)):
                    work[b + k] = volume[a + k]
        c += run


@kernel("void(float32[:,::1], float32[::1], int64, int64[::1], float32[::1], float32[:,::1])")
def filter_lines(sources: Any, destination: Any, inner: Any, radices: Any, twiddles: Any, gains: Any) -> None:
    """The sum of volumes, each filtered along the same axis.

    Args:
        sources: (S, voxels), each volume flat. destination: (voxels,); may be the memory of the first source if S is 1.
        inner: from one voxel of a line to the next, in elements: the product of the extents of the axes behind.
        radices, twiddles: the `Plan` of the axis.
        gains: (S, n), real and the same for a frequency and its negative; in the plan's order, 1 / n included.
    """
    n = gains.shape[1]
    lines, both = destination.shape[0] // n, 2 * _WIDTH
    work, total, starts = np.empty(n * both, np.float32), np.empty(n * both, np.float32), np.empty(both, np.int64)
    axis = axis_of(n, radices, twiddles)
    for c in range(both):
        starts[c] = c * n
    for first in range(0, lines, both):
        count = min(both, lines - first)
        for s in range(sources.shape[0]):
            if count < both:
                work[:] = np.float32(0)
            _exchange(sources[s], first, count, n, inner, starts, work, False)
            forward(work, _ZERO, _WIDTH, both, _WIDTH, axis)
            for r in range(n):
                gain = everywhere(gains[s, r])
                for k in range(r * both, (r + 1) * both, LANES):
                    if s == 0:
                        store(total, k, gain * load(work, k))
                    else:
                        store(total, k, load(total, k) + gain * load(work, k))
        backward(total, _ZERO, _WIDTH, both, _WIDTH, axis)
        _exchange(destination, first, count, n, inner, starts, total, True)
