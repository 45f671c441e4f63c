"""Discrete Fourier transforms in float32 with a fixed order of operations, of many lines at once.

A transform of n voxels is done in place in stages, one for each factor of n: 4 as often as possible, then 2, then odd
primes, the least first. The forward transform splits off the factors first and leaves its frequencies in the order
`Plan.frequency`; the backward one begins with that order. What lies between, a product with gains, is done in that order too,
so nothing is ever sorted. Twiddle factors are float64 sines and cosines of `detaug.kernels.scalars`, rounded once to float32.

A prime factor p costs p additions and multiplications a voxel. Where one is above `LARGEST_RADIX`, the transform is a
convolution with a chirp instead (Bluestein, "A linear filtering approach to the computation of discrete Fourier transform",
1970): k r = (k^2 + r^2 - (k - r)^2) / 2. The convolution is a product in the frequencies of a longer transform of small factors.

Lines lie beside each other: row r of ``work`` holds voxel r of all of them, first their real parts and ``imaginary``
elements further on their imaginary parts; ``width`` of them, a multiple of `LANES`. With a real, symmetric gain a complex
transform filters two real lines in one go, one as the real, one as the imaginary part.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from detaug.kernels.compiling import inlined, shared
from detaug.kernels.lanes import LANES, everywhere, load, store
from detaug.kernels.scalars import cosine, sine

#: Measured: from the next prime on a chirp is faster.
LARGEST_RADIX = 31

# Of a type of their own: for each number that is written out in a call, Numba would compile the called function once more.
_ZERO, _ONE = np.int64(0), np.int64(1)

# Lines at a time that a chirp stretches: they stay in the second-level cache.
_STRETCH = np.int64(16)


class Plan(NamedTuple):
    """What a transform of n voxels needs.

    Attributes:
        radices: int64, the factor of each stage; their product m is n, or more for a transform by a chirp.
        twiddles: float32, for each stage of radix p over ``length`` voxels: real and imaginary parts of exp(-2 pi i k / p)
            for k < p, then those of exp(-2 pi i j q / length) for j < length / p and 0 < q < p. Behind them for a chirp: those
            of exp(-pi i k^2 / n) for k < n, and of the conjugate chirp's m frequencies, over m, in the order of the stages.
        frequency: int64, the frequency, 0 to n - 1, that the forward transform leaves in each row.
        row: int64, its inverse: the row of each frequency.
    """

    radices: np.ndarray
    twiddles: np.ndarray
    frequency: np.ndarray
    row: np.ndarray


@lru_cache(maxsize=64)
def roots_of_unity(n: int) -> np.ndarray:
    """exp(2 pi i k / n) for k < n as (n, 2) float64: cosine and sine."""
    angles = [2.0 * math.pi * k / n for k in range(n)]
    return np.array([(cosine(angle), sine(angle)) for angle in angles])


@lru_cache(maxsize=64)
def plan_of(n: int) -> Plan:
    """The plan for n voxels."""
    if max(_factors(n), default=1) > LARGEST_RADIX:
        return _chirp_plan_of(n)
    roots = roots_of_unity(n) * (1.0, -1.0)
    radices = _factors(n)
    twiddles, frequency, length = [np.empty((0, 2))], np.zeros(1, np.int64), n
    for radix in radices:
        rest = length // radix
        powers = np.outer(np.arange(rest), np.arange(1, radix)).ravel()
        twiddles += [roots[np.arange(radix) * (n // radix)], roots[powers * (n // length)]]
        length = rest
    for radix in reversed(radices):
        frequency = (np.arange(radix)[:, None] + radix * frequency).ravel()
    return Plan(
        np.array(radices, np.int64),
        np.concatenate(twiddles).astype(np.float32).ravel(),
        frequency,
        np.argsort(frequency, kind="stable"),
    )


def _chirp_plan_of(n: int) -> Plan:
    m = 2 * n - 1
    while m // (m & -m) not in (1, 3, 5):  # nearly all factors are 4, the fastest
        m += 1
    stages, voxels = plan_of(m), np.arange(n)
    chirp = roots_of_unity(2 * n)[voxels**2 % (2 * n)]
    cosines = roots_of_unity(m)[:, :1]
    spectrum = np.zeros((m, 2))
    for k in voxels:  # the chirp is the same at k and at -k
        spectrum += (1 if k == 0 else 2) / m * chirp[k] * cosines[k * stages.frequency % m]
    behind = np.concatenate([chirp * (1.0, -1.0), spectrum]).astype(np.float32).ravel()
    return Plan(stages.radices, np.concatenate([stages.twiddles, behind]), voxels, voxels)


def _factors(n: int) -> list[int]:
    found = []
    while n % 4 == 0:
        found.append(4)
        n //= 4
    factor = 2
    while n > 1:
        if n % factor:
            factor += 1
        else:
            found.append(factor)
            n //= factor
    return found


@inlined
def _times(re: Any, im: Any, twiddles: Any, at: Any) -> Any:
    w_re, w_im = everywhere(twiddles[at]), everywhere(twiddles[at + 1])
    return re * w_re - im * w_im, re * w_im + im * w_re


@inlined
def _two(work: Any, re: Any, im: Any, step: Any, twiddles: Any, at: Any, backward: Any) -> None:
    a_re, a_im = load(work, re), load(work, im)
    b_re, b_im = load(work, re + step), load(work, im + step)
    if backward == 1:
        b_re, b_im = _times(b_re, b_im, twiddles, at)
    s_re, s_im, d_re, d_im = a_re + b_re, a_im + b_im, a_re - b_re, a_im - b_im
    if backward == 0:
        d_re, d_im = _times(d_re, d_im, twiddles, at)
    store(work, re, s_re)
    store(work, im, s_im)
    store(work, re + step, d_re)
    store(work, im + step, d_im)


@inlined
def _four(work: Any, re: Any, im: Any, step: Any, twiddles: Any, at: Any, backward: Any) -> None:
    a_re, a_im = load(work, re), load(work, im)
    b_re, b_im = load(work, re + step), load(work, im + step)
    c_re, c_im = load(work, re + 2 * step), load(work, im + 2 * step)
    d_re, d_im = load(work, re + 3 * step), load(work, im + 3 * step)
    if backward == 1:
        b_re, b_im = _times(b_re, b_im, twiddles, at)
        c_re, c_im = _times(c_re, c_im, twiddles, at + 2)
        d_re, d_im = _times(d_re, d_im, twiddles, at + 4)
    p_re, p_im, q_re, q_im = a_re + c_re, a_im + c_im, a_re - c_re, a_im - c_im
    r_re, r_im, s_re, s_im = b_re + d_re, b_im + d_im, b_re - d_re, b_im - d_im
    a_re, a_im, c_re, c_im = p_re + r_re, p_im + r_im, p_re - r_re, p_im - r_im
    b_re, b_im, d_re, d_im = q_re + s_im, q_im - s_re, q_re - s_im, q_im + s_re  # - i (b - d), + i (b - d)
    if backward == 0:
        b_re, b_im = _times(b_re, b_im, twiddles, at)
        c_re, c_im = _times(c_re, c_im, twiddles, at + 2)
        d_re, d_im = _times(d_re, d_im, twiddles, at + 4)
    store(work, re, a_re)
    store(work, im, a_im)
    store(work, re + step, b_re)
    store(work, im + step, b_im)
    store(work, re + 2 * step, c_re)
    store(work, im + 2 * step, c_im)
    store(work, re + 3 * step, d_re)
    store(work, im + 3 * step, d_im)


@inlined
def _odd(
    work: Any, re: Any, im: Any, step: Any, twiddles: Any, at: Any, backward: Any, radix: Any, roots: Any, spare: Any
) -> None:
    """Any odd radix: sums and differences of voxels at equal distance from the first one, and then a small table."""
    half = radix // 2
    x_re, x_im = load(work, re), load(work, im)
    y_re, y_im = x_re, x_im
    for r in range(1, half + 1):
        first, last = r * step, (radix - r) * step
        a_re, a_im = load(work, re + first), load(work, im + first)
        b_re, b_im = load(work, re + last), load(work, im + last)
        if backward == 1:
            a_re, a_im = _times(a_re, a_im, twiddles, at + 2 * (r - 1))
            b_re, b_im = _times(b_re, b_im, twiddles, at + 2 * (radix - r - 1))
        s_re, s_im = a_re + b_re, a_im + b_im
        y_re, y_im = y_re + s_re, y_im + s_im
        place = 4 * LANES * (r - 1)
        store(spare, place, s_re)
        store(spare, place + LANES, s_im)
        store(spare, place + 2 * LANES, a_re - b_re)
        store(spare, place + 3 * LANES, a_im - b_im)
    store(work, re, y_re)
    store(work, im, y_im)
    for q in range(1, half + 1):
        c_re, c_im = x_re, x_im
        s_re, s_im = everywhere(np.float32(0)), everywhere(np.float32(0))
        k = 0
        for r in range(half):
            k += q
            k -= radix if k >= radix else 0  # a division would take longer than all else here
            w_re, w_im = everywhere(twiddles[roots + 2 * k]), everywhere(twiddles[roots + 2 * k + 1])
            place = 4 * LANES * r
            c_re, c_im = c_re + w_re * load(spare, place), c_im + w_re * load(spare, place + LANES)
            s_re = s_re + w_im * load(spare, place + 2 * LANES)
            s_im = s_im + w_im * load(spare, place + 3 * LANES)
        # i (s_re + i s_im) = - s_im + i s_re
        a_re, a_im, b_re, b_im = c_re - s_im, c_im + s_re, c_re + s_im, c_im - s_re
        if backward == 0:
            a_re, a_im = _times(a_re, a_im, twiddles, at + 2 * (q - 1))
            b_re, b_im = _times(b_re, b_im, twiddles, at + 2 * (radix - q - 1))
        store(work, re + q * step, a_re)
        store(work, im + q * step, a_im)
        store(work, re + (radix - q) * step, b_re)
        store(work, im + (radix - q) * step, b_im)


@inlined
def _stage(
    work: Any, re: Any, im: Any, pitch: Any, width: Any, n: Any, length: Any, radix: Any, twiddles: Any, roots: Any,
    backward: Any, spare: Any,
) -> None:  # fmt: skip
    """All butterflies of one radix over stretches of ``length`` rows; ``roots`` is where the stage's twiddles begin."""
    rest = length // radix
    step = rest * pitch
    for begin in range(0, n, length):
        for j in range(rest):
            at = roots + 2 * (radix + j * (radix - 1))
            row = (begin + j) * pitch
            if radix == 4:
                for k in range(row, row + width, LANES):
                    _four(work, re + k, im + k, step, twiddles, at, backward)
            elif radix == 2:
                for k in range(row, row + width, LANES):
                    _two(work, re + k, im + k, step, twiddles, at, backward)
            else:
                for k in range(row, row + width, LANES):
                    _odd(work, re + k, im + k, step, twiddles, at, backward, radix, roots, spare)


class Axis(NamedTuple):
    """A `Plan` in a kernel: the number of voxels, its radices and twiddles, and scratch."""

    n: Any
    radices: Any
    twiddles: Any
    spare: Any
    stretch: Any


@inlined
def axis_of(n: Any, radices: Any, twiddles: Any) -> Any:
    """For `forward` and `backward`."""
    largest, length = 1, 1
    for s in range(radices.shape[0]):
        largest = max(largest, radices[s])
        length *= radices[s]
    stretch = np.empty(0 if length == n else 2 * _STRETCH * length, np.float32)
    return Axis(n, radices, twiddles, np.empty(2 * LANES * largest, np.float32), stretch)


@inlined
def forward(work: Any, first: Any, imaginary: Any, pitch: Any, width: Any, axis: Any) -> None:
    """Transform ``width`` lines of n voxels in place: sum of x[r] exp(-2 pi i k r / n), left in the order of `Plan`.

    Args:
        work: flat float32. Real parts begin at ``first``, imaginary ones ``imaginary`` elements further on.
        pitch: from one row to the next.
        axis: an `Axis`.
    """
    if axis.stretch.shape[0] > 0:
        _by_chirp(work, first, first + imaginary, pitch, width, axis)
    else:
        _stages_forward(work, first, imaginary, pitch, width, axis.n, axis)


@inlined
def backward(work: Any, first: Any, imaginary: Any, pitch: Any, width: Any, axis: Any) -> None:
    """The inverse of `forward`, times n.

    Stages run the other way round, and twiddles are multiplied before instead of after. Their conjugates are had by
    exchanging real and imaginary parts: the forward transform of i conj(x) is i conj of the backward transform of x.
    """
    if axis.stretch.shape[0] > 0:
        _by_chirp(work, first + imaginary, first, pitch, width, axis)
    else:
        _stages_backward(work, first, imaginary, pitch, width, axis.n, axis)


@inlined
def _stages_forward(work: Any, first: Any, imaginary: Any, pitch: Any, width: Any, n: Any, axis: Any) -> None:
    radices, twiddles, spare = axis.radices, axis.twiddles, axis.spare
    length, roots = n, _ZERO
    for s in range(radices.shape[0]):
        radix = radices[s]
        _stage(work, first, first + imaginary, pitch, width, n, length, radix, twiddles, roots, _ZERO, spare)
        roots += 2 * (radix + (length // radix) * (radix - 1))
        length //= radix


@inlined
def _stages_backward(work: Any, first: Any, imaginary: Any, pitch: Any, width: Any, n: Any, axis: Any) -> None:
    radices, twiddles, spare = axis.radices, axis.twiddles, axis.spare
    length, roots = _ONE, 2 * (n - 1 + radices.sum())
    for s in range(radices.shape[0] - 1, -1, -1):
        radix = radices[s]
        roots -= 2 * (radix + length * (radix - 1))
        length *= radix
        _stage(work, first + imaginary, first, pitch, width, n, length, radix, twiddles, roots, _ONE, spare)


@inlined
def _multiply(
    source: Any, re: Any, im: Any, pitch: Any, rows: Any, width: Any, factors: Any, at: Any, out: Any, out_re: Any,
    out_im: Any, out_pitch: Any,
) -> None:  # fmt: skip
    """Each row by its own complex number, the first one at ``factors[at]``."""
    for r in range(rows):
        for k in range(0, width, LANES):
            here, there = r * pitch + k, r * out_pitch + k
            x_re, x_im = _times(load(source, re + here), load(source, im + here), factors, at + 2 * r)
            store(out, out_re + there, x_re)
            store(out, out_im + there, x_im)


@shared
def _by_chirp(work: Any, re: Any, im: Any, pitch: Any, width: Any, axis: Any) -> None:
    """The forward transform, a few lines at a time, in the order of the frequencies."""
    n, twiddles, stretch = axis.n, axis.twiddles, axis.stretch
    both = 2 * _STRETCH
    m = stretch.shape[0] // both
    spectrum = twiddles.shape[0] - 2 * m
    chirp = spectrum - 2 * n
    for k in range(0, width, _STRETCH):
        wide = min(_STRETCH, width - k)
        stretch[n * both :] = np.float32(0)
        _multiply(work, re + k, im + k, pitch, n, wide, twiddles, chirp, stretch, _ZERO, _STRETCH, both)
        _stages_forward(stretch, _ZERO, _STRETCH, both, wide, m, axis)
        _multiply(stretch, _ZERO, _STRETCH, both, m, wide, twiddles, spectrum, stretch, _ZERO, _STRETCH, both)
        _stages_backward(stretch, _ZERO, _STRETCH, both, wide, m, axis)
        _multiply(stretch, _ZERO, _STRETCH, both, n, wide, twiddles, chirp, work, re + k, im + k, pitch)
