"""Windows over a volume, and intensity changes weighted by them.

A window is a Gaussian's share of every voxel, scaled to 0 ... 1, never held as a volume.

The share of voxel (i, j, k) is a product of one factor per axis: the normal distribution's
probability between the voxel's faces. Factors are kept relative to their axis' largest, so the
product's largest is 1 and its least, ``m``, the product of the axes' least ones. The window is
``(f0[i] f1[j] f2[k] - m) / (1 - m)``; along a line it is a straight line in ``drop2[k] = (1 -
f2[k]) / (1 - m)``, which is how kernels evaluate it.

Volumes are float32 (X, Y * Z); source and destination may be one array. A window comes as its
factors along X and Y, its ``drop2`` along Z (whose length is Z) and its least product.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from detaug.kernels.compiling import inlined, kernel
from detaug.kernels.elementary import unit_power

_LN2_HIGH = 6.93147180369123816490e-01
_LN2_LOW = 1.90821492927058770002e-10
_PER_LN2 = 1.4426950408889634
# Where the integrand has fallen to e^-45 of its largest value, below half an ulp of the sum.
_NEGLIGIBLE = 45.0
# Nodes in (0, 1) and weights of Gauss and Legendre's rule of order 8 on (-1, 1).
_NODES = (0.1834346424956498, 0.525532409916329, 0.7966664774136267, 0.9602898564975363)
_WEIGHTS = (0.362683783378362, 0.31370664587788727, 0.22238103445337448, 0.10122853629037626)
_PER_ROOT_2_PI = 0.3989422804014327
# Standard deviations from which on differences of the distribution function have less than 29 bits.
_SATURATING = 5.0
# A share below this is 0: it changes nothing, and float32's numbers below 1.2e-38 are computed with
# many times slower.
_NO_SHARE = 1e-30
#: The types of a window's arguments: factors along X and Y, drop along Z, least product.
_WINDOW = "float64[::1], float64[::1], float32[::1], float64"
_TAYLOR = tuple(1.0 / math.factorial(n) for n in range(14, -1, -1))


@inlined
def _exponential(x: Any) -> Any:
    """Return e^x in float64 for x <= 0."""
    # Below it, e^x is less than half of the least float64.
    if x < -745.0:
        return 0.0
    n = math.floor(x * _PER_LN2 + 0.5)
    r = (x - n * _LN2_HIGH) - n * _LN2_LOW
    total = 0.0
    for coefficient in _TAYLOR:
        total = total * r + coefficient
    return math.ldexp(total, np.int32(n))  # type: ignore[arg-type]


@inlined
def _relative_density(x: Any, nearest: Any) -> Any:
    """Return the normal density at x over that at ``nearest``."""
    return _exponential(-0.5 * (x - nearest) * (x + nearest))


@inlined
def _relative_probability(a: Any, b: Any, nearest: Any) -> Any:
    """Return the integral of the relative density from a >= 0 to b, by Gauss and Legendre's rule.

    Its panels are short enough for errors below an ulp.
    """
    # The density falls by e^-45 within this length.
    reach = 2.0 * _NEGLIGIBLE / (a + math.sqrt(a * a + 2.0 * _NEGLIGIBLE))
    length = min(b - a, reach)
    panels = np.int64(math.ceil(length * max(1.0, a + length)))
    half = 0.5 * length / panels
    total = 0.0
    for panel in range(panels):
        middle = a + (2 * panel + 1) * half
        # `_NODES` holds only the positive nodes: each one stands for two.
        for node, weight in zip(_NODES, _WEIGHTS):  # noqa: B905  (Numba has no strict zip)
            step = half * node
            before = _relative_density(middle - step, nearest)
            after = _relative_density(middle + step, nearest)
            total += weight * (before + after)
    return total * half


@inlined
def _distribution(x: Any) -> Any:
    """Return the probability of less than x >= 0, as SciPy's `norm.cdf` rounds it.

    That is one less the upper tail.
    """
    tail = _relative_probability(x, np.inf, x) * _exponential(-0.5 * x * x) * _PER_ROOT_2_PI
    return 1.0 - tail


@kernel("float64(float64[::1], float64, float64)")
def window_factors(out: Any, location: Any, scale: Any) -> Any:
    """Return one axis' factors: each voxel's probability over that of the likeliest voxel.

    The probabilities are those of the normal distribution.

    Relative errors are below 1e-15 (1 + d²), with d the distance from the centre in standard
    deviations: the rounding of the exponent. But where all voxels lie more than 5 standard
    deviations above the centre, factors are differences of the distribution function in float64, as
    batchgeneratorsv2 takes them: these become multiples of 2^-53, and vanish beyond 8.2 standard
    deviations.

    Args:
        out: one factor for each voxel; all 0 where the probabilities vanish.
        location: the Gaussian's centre in voxels (0 is the first voxel's centre).
        scale: its standard deviation in voxels, > 0.

    Returns:
        The likeliest voxel's probability.
    """
    n = out.shape[0]
    first = (-0.5 - location) / scale
    last = (n - 0.5 - location) / scale
    largest = 0.0
    if first > _SATURATING:
        below = _distribution(first)
        for i in range(n):
            below_next = _distribution((i + 0.5 - location) / scale)
            out[i] = below_next - below
            below = below_next
            largest = max(largest, out[i])
        for i in range(n):
            out[i] = out[i] / largest if largest > 0.0 else 0.0
        return largest
    # The point of the axis with the largest density, by which all others are divided: far from the
    # centre densities themselves would underflow.
    nearest = 0.0
    if first > 0.0:
        nearest = first
    elif last < 0.0:
        nearest = last
    for i in range(n):
        a = (i - 0.5 - location) / scale
        b = (i + 0.5 - location) / scale
        # Below the centre the interval is mirrored, so that one rule serves both sides.
        if a >= 0.0:
            out[i] = _relative_probability(a, b, nearest)
        elif b <= 0.0:
            out[i] = _relative_probability(-b, -a, -nearest)
        else:
            above_centre = _relative_probability(0.0, b, nearest)
            below_centre = _relative_probability(0.0, -a, nearest)
            out[i] = above_centre + below_centre
    for i in range(n):
        largest = max(largest, out[i])
    for i in range(n):
        out[i] /= largest
    return largest * _exponential(-0.5 * nearest * nearest) * _PER_ROOT_2_PI


@inlined
def window_line(factor0: Any, factor1: Any, least: Any, offset: Any, strength: Any) -> Any:
    """Return start and slope of a line of ``offset + strength * window``, in float32.

    The line is ``start + slope * drop2[k]``.

    Args:
        factor0, factor1: of the line along X and Y.
        least: the window's least product.
        offset, strength: see above.
    """
    line_factor = factor0 * factor1
    if line_factor < _NO_SHARE:
        return np.float32(offset), np.float32(0.0)
    start = offset + strength * ((line_factor - least) / (1.0 - least))
    return np.float32(start), np.float32(-strength * line_factor)


@kernel(f"float64(float32[:,::1], {_WINDOW})")
def windowed_sum(volume: Any, factors0: Any, factors1: Any, drop2: Any, least: Any) -> Any:
    """Return the sum of voxel times window, in float64.

    There is one sum for each position along lines, for vectors, and then these are added one after
    another.

    Args:
        volume: (X, Y * Z) float32.
        factors0, factors1, drop2, least: the window.
    """
    n2 = drop2.shape[0]
    sums = np.zeros(n2, np.float64)
    for i in range(factors0.shape[0]):
        plane = volume[i]
        for j in range(factors1.shape[0]):
            start, slope = window_line(factors0[i], factors1[j], least, 0.0, 1.0)
            # Unsigned, here and below: a signed index would be tested for its sign.
            first = np.uint64(j * n2)
            for k in range(np.uint64(n2)):
                window = start + slope * drop2[k]
                sums[k] += np.float64(plane[first + k]) * np.float64(window)
    total = 0.0
    for k in range(n2):
        total += sums[k]
    return total


@kernel(
    f"void(float32[:,::1], float32[:,::1], float32[:,::1], {_WINDOW}, float64, float64, float32)"
)
def add_windowed(
    source: Any,
    destination: Any,
    change: Any,
    factors0: Any,
    factors1: Any,
    drop2: Any,
    least: Any,
    offset: Any,
    strength: Any,
    factor: Any,
) -> None:
    """Write ``x + factor * ((offset + strength * window) * change)``.

    Args:
        source, destination: (X, Y * Z) float32; they may be one array.
        change: (X, Y * Z), or one plane of it for all.
        factors0, factors1, drop2, least: the window.
        offset, strength, factor: see above.
    """
    n2 = drop2.shape[0]
    for i in range(factors0.shape[0]):
        plane = source[i]
        out = destination[i]
        changes = change[i % change.shape[0]]
        for j in range(factors1.shape[0]):
            start, slope = window_line(factors0[i], factors1[j], least, offset, strength)
            first = np.uint64(j * n2)
            for k in range(np.uint64(n2)):
                voxel = first + k
                window = start + slope * drop2[k]
                out[voxel] = plane[voxel] + factor * (window * changes[voxel])


@kernel("void(float32[:,::1], float32[:,::1], float32, float32, float32)")
def change_by_power(source: Any, out: Any, low: Any, extent: Any, exponent: Any) -> None:
    """Write ``r^exponent - r`` with ``r = (x - low) / extent``, r from 0 to 1."""
    for i in range(source.shape[0]):
        for k in range(source.shape[1]):
            relative = (source[i, k] - low) / extent
            out[i, k] = unit_power(relative, exponent) - relative
