"""Discrete Fourier transforms in float32 with a fixed order of operations, of `WIDTH` lines at once.

A transform of n voxels is done in place in stages, one for each factor of n: 4 as often as possible, then 2, then odd
primes, the least first. The forward transform splits off the factors first and leaves its frequencies in the order
`Plan.frequency`; the backward one begins with that order. What lies between, a product with gains, is done in that order too,
so nothing is ever sorted. Twiddle factors are float64 sines and cosines of `detaug.kernels.scalars`, rounded once to float32.

A prime factor p costs p additions and multiplications a voxel. Where one is above `LARGEST_RADIX`, the transform is a
convolution with a chirp instead (Bluestein, "A linear filtering approach to the computation of discrete Fourier transform",
1970): k r = (k^2 + r^2 - (k - r)^2) / 2. The convolution is a product in the frequencies of a longer transform of small factors.

Lines lie beside each other: row r of the flat array ``work`` holds voxel r of all of them, `WIDTH` real parts and then as many
imaginary ones. With a real, symmetric gain a complex transform filters two real lines in one go, one as the real, one as the
imaginary part.
"""

from __future__ import annotations

import itertools
import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from detaug.kernels.compiling import inlined, shared
from detaug.kernels.scalars import cosine, sine

# Numbers of a type of their own: for each that is written out in a call, Numba would compile the called function once more.
#: Complex lines that are transformed together, and the numbers of a row of them.
WIDTH, ROW = np.int64(32), np.int64(64)
_ZERO, _ONE = np.int64(0), np.int64(1)

#: Measured: from the next prime on a chirp is faster.
LARGEST_RADIX = 31


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
    radices = _factors(n)
    if max(radices, default=1) > LARGEST_RADIX:
        return _chirp_plan_of(n)
    roots = roots_of_unity(n) * (1.0, -1.0)
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
    found: list[int] = []
    for factor in itertools.chain([4], itertools.count(2)):
        while n % factor == 0:
            found.append(factor)
            n //= factor
        if n == 1:
            return found
    raise AssertionError


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
    stretch = np.empty(0 if length == n else ROW * length, np.float32)
    return Axis(n, radices, twiddles, np.empty(ROW * (largest + 3), np.float32), stretch)


@inlined
def forward(work: Any, axis: Any) -> None:
    """Transform lines of n voxels in place: sum of x[r] exp(-2 pi i k r / n), left in the order of `Plan`."""
    if axis.stretch.shape[0] > 0:
        _by_chirp(work, _ZERO, WIDTH, axis)
    else:
        _stages(work, axis.n, axis, _ZERO)


@inlined
def backward(work: Any, axis: Any) -> None:
    """The inverse of `forward`, times n.

    Stages run the other way round, and twiddles are multiplied before instead of after. Their conjugates are had by
    exchanging real and imaginary parts: the forward transform of i conj(x) is i conj of the backward transform of x.
    """
    if axis.stretch.shape[0] > 0:
        _by_chirp(work, WIDTH, _ZERO, axis)
    else:
        _stages(work, axis.n, axis, _ONE)


@inlined
def _stages(work: Any, n: Any, axis: Any, back: Any) -> None:
    radices, twiddles = axis.radices, axis.twiddles
    length, roots = (_ONE, 2 * (n - 1 + radices.sum())) if back == 1 else (n, _ZERO)
    for s in range(radices.shape[0]):
        if back == 1:
            radix = radices[radices.shape[0] - 1 - s]
            roots -= 2 * (radix + length * (radix - 1))
            length *= radix
            _stage(work, n, length, radix, twiddles, roots, WIDTH, _ZERO, back, axis.spare)
        else:
            radix = radices[s]
            _stage(work, n, length, radix, twiddles, roots, _ZERO, WIDTH, back, axis.spare)
            roots += 2 * (radix + (length // radix) * (radix - 1))
            length //= radix


@inlined
def _stage(
    work: Any,
    n: Any,
    length: Any,
    radix: Any,
    twiddles: Any,
    roots: Any,
    re: Any,
    im: Any,
    back: Any,
    spare: Any,
) -> None:
    """All butterflies of one radix over stretches of ``length`` rows; ``roots`` is where the stage's twiddles begin."""
    rest = length // radix
    for begin in range(0, n, length):
        for j in range(rest):
            at = roots + 2 * (radix + j * (radix - 1))
            row, step = np.uint64((begin + j) * ROW), np.uint64(rest * ROW)
            if radix == 4:
                _four(work, row, step, np.uint64(re), np.uint64(im), twiddles, at, back)
            elif radix == 2:
                _two(work, row, step, np.uint64(re), np.uint64(im), twiddles, at, back)
            else:
                _odd(
                    work,
                    row,
                    step,
                    np.uint64(re),
                    np.uint64(im),
                    twiddles,
                    at,
                    back,
                    radix,
                    roots,
                    spare,
                )


@inlined
def _root(twiddles: Any, at: Any) -> Any:
    return twiddles[at], twiddles[at + 1]


@inlined
def _times(x: Any, w: Any) -> Any:
    return x[0] * w[0] - x[1] * w[1], x[0] * w[1] + x[1] * w[0]


@inlined
def _two(
    work: Any, row: Any, step: Any, re: Any, im: Any, twiddles: Any, at: Any, back: Any
) -> None:
    w = _root(twiddles, at)
    for k in range(np.uint64(WIDTH)):
        p, q = row + k, row + step + k
        a, b = (work[p + re], work[p + im]), (work[q + re], work[q + im])
        if back == 1:
            b = _times(b, w)
        s, d = (a[0] + b[0], a[1] + b[1]), (a[0] - b[0], a[1] - b[1])
        if back == 0:
            d = _times(d, w)
        work[p + re], work[p + im], work[q + re], work[q + im] = s[0], s[1], d[0], d[1]


@inlined
def _four(
    work: Any, row: Any, step: Any, re: Any, im: Any, twiddles: Any, at: Any, back: Any
) -> None:
    u, v, w = _root(twiddles, at), _root(twiddles, at + 2), _root(twiddles, at + 4)
    for k in range(np.uint64(WIDTH)):
        p, q, r, s = row + k, row + step + k, row + step + step + k, row + step + step + step + k
        a, b = (work[p + re], work[p + im]), (work[q + re], work[q + im])
        c, d = (work[r + re], work[r + im]), (work[s + re], work[s + im])
        if back == 1:
            b, c, d = _times(b, u), _times(c, v), _times(d, w)
        e, f = (a[0] + c[0], a[1] + c[1]), (a[0] - c[0], a[1] - c[1])
        g, h = (b[0] + d[0], b[1] + d[1]), (b[0] - d[0], b[1] - d[1])
        a, c = (e[0] + g[0], e[1] + g[1]), (e[0] - g[0], e[1] - g[1])
        b, d = (f[0] + h[1], f[1] - h[0]), (f[0] - h[1], f[1] + h[0])  # - i h, + i h
        if back == 0:
            b, c, d = _times(b, u), _times(c, v), _times(d, w)
        work[p + re], work[p + im], work[q + re], work[q + im] = a[0], a[1], b[0], b[1]
        work[r + re], work[r + im], work[s + re], work[s + im] = c[0], c[1], d[0], d[1]


@inlined
def _odd(
    work: Any, row: Any, step: Any, re: Any, im: Any, twiddles: Any, at: Any, back: Any, radix: Any, roots: Any,
    spare: Any,
) -> None:  # fmt: skip
    """Any odd radix: sums and differences of voxels at equal distance from the first one, and then a small table."""
    half, wide = radix // 2, np.uint64(WIDTH)
    total, cosines, sines = (
        np.uint64(0),
        np.uint64(ROW),
        np.uint64(2 * ROW),
    )  # where they are in ``spare``
    for k in range(wide):
        spare[total + k], spare[total + wide + k] = work[row + k + re], work[row + k + im]
    for r in range(1, half + 1):
        p, q = row + np.uint64(r) * step, row + np.uint64(radix - r) * step
        sums, differences = np.uint64((1 + 2 * r) * ROW), np.uint64((2 + 2 * r) * ROW)
        u, w = _root(twiddles, at + 2 * (r - 1)), _root(twiddles, at + 2 * (radix - r - 1))
        for k in range(wide):
            a, b = (work[p + k + re], work[p + k + im]), (work[q + k + re], work[q + k + im])
            if back == 1:
                a, b = _times(a, u), _times(b, w)
            s = a[0] + b[0], a[1] + b[1]
            spare[total + k] += s[0]
            spare[total + wide + k] += s[1]
            spare[sums + k], spare[sums + wide + k] = s[0], s[1]
            spare[differences + k], spare[differences + wide + k] = a[0] - b[0], a[1] - b[1]
    for q in range(1, half + 1):
        for k in range(wide):
            spare[cosines + k], spare[cosines + wide + k] = work[row + k + re], work[row + k + im]
            spare[sines + k], spare[sines + wide + k] = np.float32(0), np.float32(0)
        n = 0
        for r in range(1, half + 1):
            n += q
            n -= radix if n >= radix else 0  # a division would take longer than all else here
            w = _root(twiddles, roots + 2 * n)
            sums, differences = np.uint64((1 + 2 * r) * ROW), np.uint64((2 + 2 * r) * ROW)
            for k in range(np.uint64(ROW)):
                spare[cosines + k] += w[0] * spare[sums + k]
                spare[sines + k] += w[1] * spare[differences + k]
        u, w = _root(twiddles, at + 2 * (q - 1)), _root(twiddles, at + 2 * (radix - q - 1))
        here, there = row + np.uint64(q) * step, row + np.uint64(radix - q) * step
        for k in range(wide):
            c, s = (
                (spare[cosines + k], spare[cosines + wide + k]),
                (spare[sines + k], spare[sines + wide + k]),
            )
            a, b = (c[0] - s[1], c[1] + s[0]), (c[0] + s[1], c[1] - s[0])  # + i s, - i s
            if back == 0:
                a, b = _times(a, u), _times(b, w)
            work[here + k + re], work[here + k + im] = a[0], a[1]
            work[there + k + re], work[there + k + im] = b[0], b[1]
    for k in range(wide):
        work[row + k + re], work[row + k + im] = spare[total + k], spare[total + wide + k]


@inlined
def _multiply(
    source: Any,
    re: Any,
    im: Any,
    rows: Any,
    factors: Any,
    at: Any,
    out: Any,
    to_re: Any,
    to_im: Any,
) -> None:
    """Each row by its own complex number, the first one at ``factors[at]``."""
    for r in range(rows):
        w = _root(factors, at + 2 * r)
        row = np.uint64(r * ROW)
        for k in range(np.uint64(WIDTH)):
            p = row + k
            x = _times((source[p + np.uint64(re)], source[p + np.uint64(im)]), w)
            out[p + np.uint64(to_re)], out[p + np.uint64(to_im)] = x


@shared
def _by_chirp(work: Any, re: Any, im: Any, axis: Any) -> None:
    """The forward transform in the order of the frequencies."""
    n, twiddles, stretch = axis.n, axis.twiddles, axis.stretch
    m = stretch.shape[0] // ROW
    spectrum = twiddles.shape[0] - 2 * m
    chirp = spectrum - 2 * n
    stretch[n * ROW :] = np.float32(0)
    _multiply(work, re, im, n, twiddles, chirp, stretch, _ZERO, WIDTH)
    _stages(stretch, m, axis, _ZERO)
    _multiply(stretch, _ZERO, WIDTH, m, twiddles, spectrum, stretch, _ZERO, WIDTH)
    _stages(stretch, m, axis, _ONE)
    _multiply(stretch, _ZERO, WIDTH, n, twiddles, chirp, work, re, im)
