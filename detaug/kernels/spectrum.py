"""K-space of real volumes, of which half is enough, and filters in it along one axis.

A gain that depends on one axis' frequency alone is a filter along that axis: the transforms along the other axes and their
inverses cancel. So `filter_lines` makes no volume of k-space. For other gains, `to_k_space` transforms along X, two real lines as
one complex one, whose frequencies 0 to X / 2 are taken apart; the negative ones are the conjugates of these. What is left is
complex, and is transformed along Y and Z.

Whatever is done to lines is done to a few at a time, which are brought beside each other and back.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from detaug.kernels.compiling import inlined, kernel
from detaug.kernels.fourier import ROW, WIDTH, axis_of, backward, forward

# Lines of a plane in k-space are filled up to a multiple of this.
_FILL = 8


def padded_lines(n1: int, n2: int) -> tuple[int, int]:
    """How long lines are in a plane (Y, Z) of k-space, and how many columns it has: whole blocks of `ROW`."""
    pitch = -(-n2 // _FILL) * _FILL
    return pitch, -(-n1 * pitch // int(ROW)) * int(ROW)


@inlined
def _bring(source: Any, starts: Any, stride: Any, n: Any, work: Any, column: Any) -> None:
    """Voxel k of line c from ``source[starts[c] + k * stride]`` to row k and that column of ``work``, and those behind."""
    for k in range(n):
        for c in range(starts.shape[0]):
            work[np.uint64(k * ROW + column + c)] = source[np.uint64(starts[c] + k * stride)]


@inlined
def _bring_back(work: Any, column: Any, starts: Any, stride: Any, n: Any, out: Any) -> None:
    for k in range(n):
        for c in range(starts.shape[0]):
            out[np.uint64(starts[c] + k * stride)] = work[np.uint64(k * ROW + column + c)]


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
    work, total = np.zeros(n * ROW, np.float32), np.empty(n * ROW, np.float32)
    starts, axis = np.empty(ROW, np.int64), axis_of(n, radices, twiddles)
    for first in range(0, destination.shape[0] // n, ROW):
        count = min(ROW, destination.shape[0] // n - first)
        for c in range(count):
            starts[c] = (first + c) // inner * n * inner + (first + c) % inner
        total[:] = np.float32(-0.0)  # what is added to it stays as it is, a zero's sign too
        for s in range(sources.shape[0]):
            if count < ROW:
                work[:] = np.float32(0)
            _bring(sources[s], starts[:count], inner, n, work, 0)
            forward(work, axis)
            for r in range(n):
                gain, row = gains[s, r], np.uint64(r * ROW)
                for k in range(np.uint64(ROW)):
                    total[row + k] += gain * work[row + k]
        backward(total, axis)
        _bring_back(total, 0, starts[:count], inner, n, destination)


@kernel("void(float32[:,::1], int64[::1], float32[::1], int64[::1], float32[:,:,::1])")
def to_k_space(source: Any, radices: Any, twiddles: Any, row: Any, spectrum: Any) -> None:
    """Transform along X.

    Args:
        source: (X, columns), a multiple of `ROW` columns; the n-th and the (n + `WIDTH`)-th of a block are one complex line.
        radices, twiddles, row: X's `Plan`.
        spectrum: (K, 2, columns), real and imaginary parts of frequencies 0 to K - 1 along X, at most X // 2 + 1 of them.
    """
    n, half, wide = source.shape[0], np.float32(0.5), np.uint64(WIDTH)
    work, axis = np.empty(n * ROW, np.float32), axis_of(n, radices, twiddles)
    for first in range(0, source.shape[1], ROW):
        for i in range(n):
            for c in range(np.uint64(ROW)):
                work[np.uint64(i * ROW) + c] = source[i, np.uint64(first) + c]
        forward(work, axis)
        for f in range(spectrum.shape[0]):
            p, q = np.uint64(row[f] * ROW), np.uint64(row[(n - f) % n] * ROW)
            re, im = spectrum[f, 0, first : first + ROW], spectrum[f, 1, first : first + ROW]
            for k in range(wide):
                re[k] = half * (work[p + k] + work[q + k])
                im[k] = half * (work[p + wide + k] - work[q + wide + k])
                re[wide + k] = half * (work[p + wide + k] + work[q + wide + k])
                im[wide + k] = half * (work[q + k] - work[p + k])


@kernel("void(float32[:,:,::1], int64[::1], float32[::1], int64[::1], float32[:,::1])")
def from_k_space(spectrum: Any, radices: Any, twiddles: Any, row: Any, destination: Any) -> None:
    """The inverse of `to_k_space`, times X; frequencies that ``spectrum`` does not have are 0."""
    n, wide = destination.shape[0], np.uint64(WIDTH)
    work, axis = np.empty(n * ROW, np.float32), axis_of(n, radices, twiddles)
    for first in range(0, destination.shape[1], ROW):
        work[:] = np.float32(0)
        for f in range(spectrum.shape[0]):
            p, q = np.uint64(row[f] * ROW), np.uint64(row[(n - f) % n] * ROW)
            re, im = spectrum[f, 0, first : first + ROW], spectrum[f, 1, first : first + ROW]
            for k in range(wide):
                if p == q:  # a real line has real numbers here
                    work[p + k], work[p + wide + k] = re[k], re[wide + k]
                else:
                    work[p + k], work[p + wide + k] = re[k] - im[wide + k], im[k] + re[wide + k]
                    work[q + k], work[q + wide + k] = re[k] + im[wide + k], re[wide + k] - im[k]
        backward(work, axis)
        for i in range(n):
            for c in range(np.uint64(ROW)):
                destination[i, np.uint64(first) + c] = work[np.uint64(i * ROW) + c]


@kernel("void(float32[::1], int64, int64[::1], int64, int64, int64[::1], float32[::1], boolean)")
def transform_lines(
    spectrum: Any, imaginary: Any, starts: Any, stride: Any, n: Any, radices: Any, twiddles: Any, back: Any
) -> None:
    """Transform complex lines of n voxels in place, or back, times n.

    Args:
        spectrum: flat; where the lines start, and their imaginary parts ``imaginary`` elements further on.
        stride: from one voxel of a line to the next, in elements. radices, twiddles: the axis' `Plan`.
    """
    work, axis = np.zeros(n * ROW, np.float32), axis_of(n, radices, twiddles)
    for first in range(0, starts.shape[0], WIDTH):
        lines = starts[first : first + WIDTH]
        for part in range(2):
            _bring(spectrum[part * imaginary :], lines, stride, n, work, part * WIDTH)
        if back:
            backward(work, axis)
        else:
            forward(work, axis)
        for part in range(2):
            _bring_back(work, part * WIDTH, lines, stride, n, spectrum[part * imaginary :])
