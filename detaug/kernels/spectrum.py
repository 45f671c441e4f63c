"""The k-space of a real volume, of which half is enough, low-pass filters in it, and waves added to the volume.

Axes of a volume (X, Y, Z) are transformed one after the other: X first, two real lines as one complex one, whose
frequencies 0 to X / 2 are taken apart; the negative ones are the conjugates of these. Each such frequency then is a complex
plane (Y, Z) that stays in the second-level cache while it is transformed along Y and Z, filtered and transformed back.

Planes are (2, columns) float32, real parts and then imaginary ones, with lines of Z filled up to a multiple of `LANES`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from detaug.kernels.compiling import inlined, kernel
from detaug.kernels.fourier import axis_of, backward, forward
from detaug.kernels.lanes import LANES, columns_to_lines, everywhere, lines_to_columns, load, store

# Complex lines at a time, and 0; not plain integers, for each of which Numba would compile what is called once more.
_WIDTH, _ZERO = np.int64(32), np.int64(0)


def plane_columns(n1: int, n2: int) -> int:
    """Columns of a plane (Y, Z): whole blocks of two times `_WIDTH`."""
    block, pitch = 2 * int(_WIDTH), -(-n2 // LANES) * LANES
    return -(-n1 * pitch // block) * block


@inlined
def _places(first: Any, n1: Any, n2: Any, pitch: Any, places: Any) -> None:
    """Which element of a flat plane (Y, Z) each column of a block is, -1 for none."""
    for c in range(places.shape[0]):
        j, k = (first + c) // pitch, (first + c) % pitch
        places[c] = j * n2 + k if (j < n1) & (k < n2) else -1


@kernel("void(float32[:,::1], int64, int64[::1], float32[::1], int64[::1], float32[:,:,::1])")
def to_k_space(source: Any, n2: Any, radices: Any, twiddles: Any, row: Any, spectrum: Any) -> None:
    """Transform along X.

    Args:
        source: (X, Y * Z) of Z = ``n2``.
        radices, twiddles, row: X's `Plan`.
        spectrum: (K, 2, columns): frequencies 0 to K - 1 along X, at most X // 2 + 1 of them.
    """
    n, size = source.shape
    columns = spectrum.shape[2]
    both, pitch = 2 * _WIDTH, (n2 + LANES - 1) // LANES * LANES
    work, places = np.empty(n * both, np.float32), np.empty(both, np.int64)
    axis = axis_of(n, radices, twiddles)
    out = spectrum.reshape(-1)
    half = everywhere(np.float32(0.5))
    for first in range(0, columns, both):
        _places(first, size // n2, n2, pitch, places)
        whole = (places[0] >= 0) & (places[both - 1] == places[0] + both - 1)
        for i in range(n):
            line, b = source[i], np.uint64(i * both)
            if whole:
                a = np.uint64(places[0])
                for c in range(np.uint64(both)):
                    work[b + c] = line[a + c]
            else:
                for c in range(both):
                    work[b + c] = line[places[c]] if places[c] >= 0 else np.float32(0)
        forward(work, _ZERO, _WIDTH, both, _WIDTH, axis)
        for f in range(spectrum.shape[0]):
            p, q = row[f] * both, row[(n - f) % n] * both
            at = 2 * f * columns + first
            for k in range(0, _WIDTH, LANES):
                p_re, p_im = load(work, p + k), load(work, p + _WIDTH + k)
                q_re, q_im = load(work, q + k), load(work, q + _WIDTH + k)
                store(out, at + k, half * (p_re + q_re))
                store(out, at + columns + k, half * (p_im - q_im))
                store(out, at + _WIDTH + k, half * (p_im + q_im))
                store(out, at + columns + _WIDTH + k, half * (q_re - p_re))


@kernel("void(float32[:,:,::1], int64, int64[::1], float32[::1], int64[::1], float32[:,::1])")
def from_k_space(spectrum: Any, n2: Any, radices: Any, twiddles: Any, row: Any, destination: Any) -> None:
    """The inverse of `to_k_space`, times X; frequencies that ``spectrum`` does not have are 0."""
    n, size = destination.shape
    columns = spectrum.shape[2]
    both, pitch = 2 * _WIDTH, (n2 + LANES - 1) // LANES * LANES
    work, places = np.empty(n * both, np.float32), np.empty(both, np.int64)
    axis = axis_of(n, radices, twiddles)
    flat = spectrum.reshape(-1)
    for first in range(0, columns, both):
        _places(first, size // n2, n2, pitch, places)
        whole = (places[0] >= 0) & (places[both - 1] == places[0] + both - 1)
        work[:] = np.float32(0)
        for f in range(spectrum.shape[0]):
            p, q = row[f] * both, row[(n - f) % n] * both
            at = 2 * f * columns + first
            for k in range(0, _WIDTH, LANES):
                a_re, a_im = load(flat, at + k), load(flat, at + columns + k)
                b_re, b_im = load(flat, at + _WIDTH + k), load(flat, at + columns + _WIDTH + k)
                if p == q:  # a real line has real numbers here
                    store(work, p + k, a_re)
                    store(work, p + _WIDTH + k, b_re)
                else:
                    store(work, p + k, a_re - b_im)
                    store(work, p + _WIDTH + k, a_im + b_re)
                    store(work, q + k, a_re + b_im)
                    store(work, q + _WIDTH + k, b_re - a_im)
        backward(work, _ZERO, _WIDTH, both, _WIDTH, axis)
        for i in range(n):
            line, b = destination[i], np.uint64(i * both)
            if whole:
                a = np.uint64(places[0])
                for c in range(np.uint64(both)):
                    line[a + c] = work[b + c]
            else:
                for c in range(both):
                    if places[c] >= 0:
                        line[places[c]] = work[b + c]


@inlined
def _along_y(spectrum: Any, plane: Any, columns: Any, pitch: Any, axis: Any, back: Any) -> None:
    """A plane, a few of its columns at a time."""
    for c in range(0, pitch, _WIDTH):
        first, width = 2 * plane * columns + c, min(_WIDTH, pitch - c)
        if back:
            backward(spectrum, first, columns, pitch, width, axis)
        else:
            forward(spectrum, first, columns, pitch, width, axis)


@inlined
def _bring(spectrum: Any, starts: Any, count: Any, columns: Any, n: Any, work: Any) -> None:
    """Lines along Z, beside each other; columns without a line are 0."""
    if count < _WIDTH:
        work[:] = np.float32(0)
    lines_to_columns(spectrum, starts, _ZERO, count, n, work, _ZERO, 2 * _WIDTH)
    lines_to_columns(spectrum, starts, columns, count, n, work, _WIDTH, 2 * _WIDTH)


@inlined
def _bring_back(work: Any, starts: Any, count: Any, columns: Any, n: Any, spectrum: Any) -> None:
    columns_to_lines(work, _ZERO, 2 * _WIDTH, starts, _ZERO, count, n, spectrum)
    columns_to_lines(work, _WIDTH, 2 * _WIDTH, starts, columns, count, n, spectrum)


@kernel("float64(float32[:,:,::1], int64, int64, int64[::1], float32[::1], int64[::1], float32[::1])")
def largest_magnitude(
    spectrum: Any, n1: Any, n2: Any, radices1: Any, twiddles1: Any, radices2: Any, twiddles2: Any
) -> Any:
    """The largest absolute value in k-space; not finite if one of the voxels is not.

    Args:
        spectrum: from `to_k_space`, all of X // 2 + 1 frequencies; it is overwritten.
        n1, n2: Y and Z. radices, twiddles: the `Plan` of each.
    """
    both, columns, pitch = 2 * _WIDTH, spectrum.shape[2], (n2 + LANES - 1) // LANES * LANES
    flat = spectrum.reshape(-1)
    axis1, axis2 = axis_of(n1, radices1, twiddles1), axis_of(n2, radices2, twiddles2)
    work, starts, largest = np.empty(n2 * both, np.float32), np.empty(_WIDTH, np.int64), np.zeros(_WIDTH, np.float64)
    together = max(1, _WIDTH // n1)  # planes, so that there are lines enough
    for begin in range(0, spectrum.shape[0], together):
        end = min(begin + together, spectrum.shape[0])
        for plane in range(begin, end):
            _along_y(flat, plane, columns, pitch, axis1, False)
        for line in range(begin * n1, end * n1, _WIDTH):
            count = min(_WIDTH, end * n1 - line)
            for c in range(count):
                starts[c] = 2 * ((line + c) // n1) * columns + ((line + c) % n1) * pitch
            _bring(flat, starts, count, columns, n2, work)
            forward(work, _ZERO, _WIDTH, both, _WIDTH, axis2)
            for k in range(n2):
                at = np.uint64(k * both)
                for c in range(np.uint64(_WIDTH)):
                    re, im = np.float64(work[at + c]), np.float64(work[at + np.uint64(_WIDTH) + c])
                    square = re * re + im * im
                    largest[c] = largest[c] if square <= largest[c] else square  # NaN is taken
    total = 0.0
    for c in range(_WIDTH):
        total = total if largest[c] <= total else largest[c]
    return np.sqrt(total)


@inlined
def _limit_lines(work: Any, squares: Any, room: Any, scale: Any) -> None:
    """Gains of lines along Z: ``scale`` if a frequency and its negative are in the ball, half of it if one of them is."""
    both = 2 * _WIDTH
    half = np.float32(0.5) * scale
    for k in range(squares.shape[1]):
        here, there = squares[0, k], squares[1, k]
        at = np.uint64(k * both)
        for c in range(np.uint64(_WIDTH)):
            gain = (half if here <= room[c] else np.float32(0)) + (
                half if there <= room[np.uint64(_WIDTH) + c] else np.float32(0)
            )
            work[at + c] *= gain
            work[at + np.uint64(_WIDTH) + c] *= gain


@kernel(
    "void(float32[:,:,::1], int64[::1], float32[::1], int64[::1], float32[::1], int32[:,::1], int32[:,::1], int32[:,::1], "
    "int32, float32)"
)
def keep_ball(
    spectrum: Any, radices1: Any, twiddles1: Any, radices2: Any, twiddles2: Any, squares0: Any, squares1: Any,
    squares2: Any, limit: Any, scale: Any,
) -> None:  # fmt: skip
    """Transform along Y and Z, keep what is in a ball around the middle, and transform back, times Y Z ``scale``.

    The ball's middle need not be frequency 0, so that a frequency may be in it and its negative not. The real part of what
    such a filter gives is what the mean of its gains for the two gives.

    Args:
        spectrum: from `to_k_space`.
        radices, twiddles: the `Plan` of Y and Z.
        squares: for each axis (2, n), the squared distance of each frequency from the ball's middle, and that of its
            negative; along X in the order of the frequencies, along Y and Z in that of the plan.
        limit: sums up to this one are in the ball.
    """
    n1, n2 = squares1.shape[1], squares2.shape[1]
    both, columns, pitch = 2 * _WIDTH, spectrum.shape[2], (n2 + LANES - 1) // LANES * LANES
    flat = spectrum.reshape(-1)
    axis1, axis2 = axis_of(n1, radices1, twiddles1), axis_of(n2, radices2, twiddles2)
    work, starts, room = np.empty(n2 * both, np.float32), np.empty(_WIDTH, np.int64), np.empty(both, np.int32)
    least = squares2[0, 0]
    for k in range(n2):
        least = min(least, squares2[0, k], squares2[1, k])
    together = max(1, _WIDTH // n1)  # planes, so that there are lines enough
    for begin in range(0, spectrum.shape[0], together):
        end = min(begin + together, spectrum.shape[0])
        for plane in range(begin, end):
            _along_y(flat, plane, columns, pitch, axis1, False)
        count = 0
        for line in range(begin * n1, end * n1):
            i, j = line // n1, line % n1
            start = 2 * i * columns + j * pitch
            here = limit - squares0[0, i] - squares1[0, j]
            there = limit - squares0[1, i] - squares1[1, j]
            if max(here, there) >= least:
                starts[count], room[count], room[_WIDTH + count] = start, here, there
                count += 1
            else:
                flat[start : start + n2] = np.float32(0)
                flat[start + columns : start + columns + n2] = np.float32(0)
            if (count == _WIDTH) | ((line == end * n1 - 1) & (count > 0)):
                _bring(flat, starts, count, columns, n2, work)
                forward(work, _ZERO, _WIDTH, both, _WIDTH, axis2)
                _limit_lines(work, squares2, room, scale)
                backward(work, _ZERO, _WIDTH, both, _WIDTH, axis2)
                _bring_back(work, starts, count, columns, n2, flat)
                count = 0
        for plane in range(begin, end):
            _along_y(flat, plane, columns, pitch, axis1, True)


@kernel("void(float32[:,::1], float32[:,::1], float64[:,:,::1], float64[:,:,::1], float32[:,:,::1])")
def add_waves(source: Any, destination: Any, waves0: Any, waves1: Any, waves2: Any) -> None:
    """``x`` plus the sum over s of the real part of ``waves0[s, i] waves1[s, j] waves2[s, k]``, computed line by line.

    Args:
        source, destination: (X, Y * Z); may be one array.
        waves0, waves1: (S, 2, X) and (S, 2, Y), real and imaginary parts. waves2: (S, 2, Z).
    """
    n2 = waves2.shape[2]
    whole = n2 // LANES * LANES
    for i in range(waves0.shape[2]):
        plane, out = source[i], destination[i]
        for j in range(waves1.shape[2]):
            first = j * n2
            for s in range(waves0.shape[0]):
                re = np.float32(waves0[s, 0, i] * waves1[s, 0, j] - waves0[s, 1, i] * waves1[s, 1, j])
                im = np.float32(waves0[s, 0, i] * waves1[s, 1, j] + waves0[s, 1, i] * waves1[s, 0, j])
                cosines, sines, before = waves2[s, 0], waves2[s, 1], plane if s == 0 else out
                all_re, all_im = everywhere(re), everywhere(im)
                for k in range(0, whole, LANES):
                    wave = all_re * load(cosines, k) - all_im * load(sines, k)
                    store(out, first + k, load(before, first + k) + wave)
                for k in range(whole, n2):
                    out[first + k] = before[first + k] + (re * cosines[k] - im * sines[k])
