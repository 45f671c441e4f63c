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
from detaug.kernels.fourier import ROW, WIDTH, axis_of, backward, forward, plan_of

# Lines of a plane (Y, Z) in k-space are filled up to a multiple of this, and planes to whole blocks of `ROW` columns.
_FILL = 8
# Neighbouring voxels of a line that are brought together, so that they come from memory once.
_TILE = 16


@inlined
def _bring(
    values: Any, starts: Any, stride: Any, n: Any, work: Any, column: Any, back: Any
) -> None:
    """Voxel k of line c from ``values[starts[c] + k * stride]`` to row k and column ``column + c`` of ``work``, or back."""
    tile = _TILE if stride == 1 else 1
    for begin in range(0, n, tile):
        for c in range(starts.shape[0]):
            for k in range(begin, min(begin + tile, n)):
                here, there = np.uint64(starts[c] + k * stride), np.uint64(k * ROW + column + c)
                if back:
                    values[here] = work[there]
                else:
                    work[there] = values[here]


@kernel("void(float32[:,::1], float32[::1], int64, int64[::1], float32[::1], float32[:,::1])")
def filter_lines(
    sources: Any, destination: Any, inner: Any, radices: Any, twiddles: Any, gains: Any
) -> None:
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
            _bring(sources[s], starts[:count], inner, n, work, 0, False)
            forward(work, axis)
            for r in range(n):
                gain, row = gains[s, r], np.uint64(r * ROW)
                for k in range(np.uint64(ROW)):
                    total[row + k] += gain * work[row + k]
        backward(total, axis)
        _bring(destination, starts[:count], inner, n, total, 0, True)


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
    spectrum: Any,
    imaginary: Any,
    starts: Any,
    stride: Any,
    n: Any,
    radices: Any,
    twiddles: Any,
    back: Any,
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
            _bring(spectrum[part * imaginary :], lines, stride, n, work, part * WIDTH, False)
        if back:
            backward(work, axis)
        else:
            forward(work, axis)
        for part in range(2):
            _bring(spectrum[part * imaginary :], lines, stride, n, work, part * WIDTH, True)


class KSpace:
    """The k-space of a real volume (X, Y, Z) at the first frequencies along X, worked on in place.

    Attributes:
        lines: (frequencies, 2, Y, Z), real and imaginary parts.
    """

    def __init__(self, volume: np.ndarray, frequencies: int) -> None:
        self._shape = volume.shape
        self._pitch = -(-volume.shape[2] // _FILL) * _FILL
        columns = -(-volume.shape[1] * self._pitch // int(ROW)) * int(ROW)
        self._padded = np.zeros((self._shape[0], columns), np.float32)
        self._unpadded(self._padded)[...] = volume
        self._values = np.empty((frequencies, 2, columns), np.float32)
        self.lines = self._unpadded(self._values)
        plan = plan_of(self._shape[0])
        to_k_space(self._padded, plan.radices, plan.twiddles, plan.row, self._values)

    def _unpadded(self, columns: np.ndarray) -> np.ndarray:
        _, y, z = self._shape
        return columns[..., : y * self._pitch].reshape(*columns.shape[:-1], y, self._pitch)[..., :z]

    def along_y(self, *, back: bool = False) -> None:
        """Transform along Y, or back, times Y: what fills up the lines as well, for it goes back together with them."""
        if self._shape[1] > 1:
            self._transform(
                np.ones((len(self.lines), self._pitch), bool), 1, self._pitch, self._shape[1], back
            )

    def along_z(self, chosen: np.ndarray, *, back: bool = False) -> None:
        """Transform those lines along Z where ``chosen``, (frequencies, Y), is True, or back, times Z."""
        self._transform(chosen, self._pitch, 1, self._shape[2], back)

    def _transform(self, chosen: np.ndarray, apart: int, stride: int, n: int, back: bool) -> None:
        columns, plan = self._values.shape[2], plan_of(n)
        planes, lines = np.nonzero(chosen)
        starts = planes * (2 * columns) + lines * apart
        transform_lines(
            self._values.reshape(-1), columns, starts, stride, n, plan.radices, plan.twiddles, back
        )

    def image(self) -> np.ndarray:
        """The volume of what k-space holds now, times X."""
        plan = plan_of(self._shape[0])
        from_k_space(self._values, plan.radices, plan.twiddles, plan.row, self._padded)
        return self._unpadded(self._padded)

    kernels = (to_k_space, transform_lines, from_k_space)
