"""K-space of real volumes, of which half is enough: filters in it, along one axis or all, and waves added to a volume.

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
# Neighbouring voxels of a line that are brought together, so that they come from memory once.
_TILE = 16


def padded_lines(n1: int, n2: int) -> tuple[int, int]:
    """How long lines are in a plane (Y, Z) of k-space, and how many columns it has: whole blocks of `ROW`."""
    pitch = -(-n2 // _FILL) * _FILL
    return pitch, -(-n1 * pitch // int(ROW)) * int(ROW)


@inlined
def _bring(source: Any, starts: Any, stride: Any, n: Any, work: Any, column: Any) -> None:
    """Voxel k of line c from ``source[starts[c] + k * stride]`` to row k and that column of ``work``, and those behind."""
    tile = _TILE if stride == 1 else 1
    for begin in range(0, n, tile):
        for c in range(starts.shape[0]):
            for k in range(begin, min(begin + tile, n)):
                work[np.uint64(k * ROW + column + c)] = source[np.uint64(starts[c] + k * stride)]


@inlined
def _bring_back(work: Any, column: Any, starts: Any, stride: Any, n: Any, out: Any) -> None:
    tile = _TILE if stride == 1 else 1
    for begin in range(0, n, tile):
        for c in range(starts.shape[0]):
            for k in range(begin, min(begin + tile, n)):
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


@kernel("void(float32[:,:,::1], int64, int64, int64[::1], float32[::1], boolean)")
def along_y(spectrum: Any, n: Any, pitch: Any, radices: Any, twiddles: Any, back: Any) -> None:
    """Transform planes along Y in place, or back, times Y.

    Args:
        spectrum: (K, 2, columns), lines of ``pitch`` columns one after another. n, radices, twiddles: Y, and its `Plan`.
    """
    work, axis = np.zeros(n * ROW, np.float32), axis_of(n, radices, twiddles)
    for f in range(spectrum.shape[0]):
        for first in range(0, pitch, WIDTH):
            width = np.uint64(min(WIDTH, pitch - first))
            for part in range(2):
                plane = spectrum[f, part]
                for j in range(n):
                    at, row = np.uint64(j * pitch + first), np.uint64(j * ROW + part * WIDTH)
                    for k in range(width):
                        work[row + k] = plane[at + k]
            if back:
                backward(work, axis)
            else:
                forward(work, axis)
            for part in range(2):
                plane = spectrum[f, part]
                for j in range(n):
                    at, row = np.uint64(j * pitch + first), np.uint64(j * ROW + part * WIDTH)
                    for k in range(width):
                        plane[at + k] = work[row + k]


@inlined
def _keep_ball(work: Any, room: Any, squares: Any, scale: Any) -> None:
    half, none = np.float32(0.5) * scale, np.float32(0)
    for k in range(squares.shape[1]):
        here, there, row = squares[0, k], squares[1, k], np.uint64(k * ROW)
        for c in range(np.uint64(room.shape[1])):
            gain = (half if here <= room[0, c] else none) + (half if there <= room[1, c] else none)
            work[row + c] *= gain
            work[row + np.uint64(WIDTH) + c] *= gain


@kernel("void(float32[::1], int64, int64[::1], int64, int64[::1], float32[::1], int32[:,::1], int32[:,::1], float32)")
def along_z(
    spectrum: Any, imaginary: Any, starts: Any, n: Any, radices: Any, twiddles: Any, room: Any, squares: Any, scale: Any
) -> None:
    """Transform lines along Z in place; or there, times the gains of a ball, and back.

    The ball's middle need not be frequency 0, so that a frequency may be in it and its negative not. The real part of what
    such a filter gives is what the mean of its gains for the two gives.

    Args:
        spectrum: flat; where a line starts, and its imaginary parts ``imaginary`` elements further on.
        n, radices, twiddles: Z, and its `Plan`.
        squares: (2, Z) in the plan's order, the squared distance along Z of each frequency from the ball's middle, and that of
            its negative; (2, 0) for no ball.
        room: (2, lines), up to which squares are in the ball. scale: the gain in it.
    """
    work, axis = np.zeros(n * ROW, np.float32), axis_of(n, radices, twiddles)
    for first in range(0, starts.shape[0], WIDTH):
        lines = starts[first : first + WIDTH]
        for part in range(2):
            _bring(spectrum[part * imaginary :], lines, 1, n, work, part * WIDTH)
        forward(work, axis)
        if squares.shape[1] > 0:
            _keep_ball(work, room[:, first : first + WIDTH], squares, scale)
            backward(work, axis)
        for part in range(2):
            _bring_back(work, part * WIDTH, lines, 1, n, spectrum[part * imaginary :])


@kernel("void(float32[:,::1], float32[:,::1], float64[:,:,::1], float64[:,:,::1], float32[:,:,::1])")
def add_waves(source: Any, destination: Any, waves0: Any, waves1: Any, waves2: Any) -> None:
    """``x`` plus the sum over s of the real part of ``waves0[s, i] waves1[s, j] waves2[s, k]``, computed line by line.

    Args:
        source, destination: (X, Y * Z); may be one array.
        waves0, waves1: (S, 2, X) and (S, 2, Y), real and imaginary parts. waves2: (S, 2, Z).
    """
    n2 = waves2.shape[2]
    line = np.empty(n2, np.float32)
    for i in range(waves0.shape[2]):
        for j in range(waves1.shape[2]):
            for k in range(n2):
                line[k] = source[i, j * n2 + k]
            for s in range(waves0.shape[0]):
                re = np.float32(waves0[s, 0, i] * waves1[s, 0, j] - waves0[s, 1, i] * waves1[s, 1, j])
                im = np.float32(waves0[s, 0, i] * waves1[s, 1, j] + waves0[s, 1, i] * waves1[s, 0, j])
                cosines, sines = waves2[s, 0], waves2[s, 1]
                for k in range(n2):
                    line[k] += re * cosines[k] - im * sines[k]
            for k in range(n2):
                destination[i, j * n2 + k] = line[k]
