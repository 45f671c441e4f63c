"""Separable convolution with symmetric kernels along all three axes in one pass, and sharpening; in place if wanted.

Plane after plane is convolved along its own two axes into a ring of planes; where the ring holds all that a plane of
the output needs, it is summed along the first axis. So an input plane is read before the output plane of its index is
written, and the only scratch is the ring, of as many planes as the first axis' kernel has taps, and two planes more.

The two voxels at equal distance are added first, then multiplied by their common weight. Sums are in float32; of each
three pairs the outer, smaller ones are added first.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from detaug.kernels.compiling import inlined, kernel, shared
from detaug.kernels.windows import Window, windowed

# Voxels that are swept together, so that their sum stays in the first-level cache from sweep to sweep.
_CHUNK = 2048
# Not plain integers, for each of which Numba would compile what is called once more.
_ZERO, _ONE = np.int64(0), np.int64(1)


@inlined
def reflected(i: Any, n: Any, edge_twice: Any) -> Any:
    """The voxel of an axis of n that stands in for index i.

    ``edge_twice`` False mirrors at the outermost voxels' centres (``c b | a b c | b a``: torch's and NumPy's
    "reflect"), True at their outer faces (``b a | a b c | c b``: SciPy's "reflect", NumPy's "symmetric").
    """
    if n == 1:
        return 0
    if edge_twice:
        period = 2 * n
        at = i % period
        return at if at < n else period - 1 - at
    period = 2 * (n - 1)
    at = i % period
    return at if at < n else period - at


@inlined
def _pair(steps: Any, weights: Any, t: Any, shift: Any) -> Any:
    """The weight of two voxels at equal distance, and where they are."""
    return weights[t], np.uint64(steps[0, t] + shift), np.uint64(steps[1, t] + shift)


@shared
def weighted_lines(rows: Any, centre: Any, pitch: Any, steps: Any, weights: Any, out: Any, start: Any, out_pitch: Any,
                   count: Any, n: Any) -> None:  # fmt: skip
    """Sums of weighted voxels: for k < n, ``out[start + k]`` becomes

    ``weights[0] rows[centre + k] + sum over t > 0 of weights[t] (rows[steps[0, t] + k] + rows[steps[1, t] + k])``,

    and so on, ``count`` times in all, each time ``pitch`` and ``out_pitch`` elements further on.
    """
    radius = weights.shape[0] - 1
    whole = radius - radius % 3
    length = np.uint64(n)
    for line in range(count):
        shift = line * pitch
        to, middle = np.uint64(start + line * out_pitch), np.uint64(centre + shift)
        for k in range(length):
            out[to + k] = weights[0] * rows[middle + k]
        for t in range(1, whole, 3):
            u, a, b = _pair(steps, weights, t, shift)
            v, c, d = _pair(steps, weights, t + 1, shift)
            w, e, f = _pair(steps, weights, t + 2, shift)
            for k in range(length):
                inner = v * (rows[c + k] + rows[d + k]) + w * (rows[e + k] + rows[f + k])
                out[to + k] += u * (rows[a + k] + rows[b + k]) + inner
        if radius - whole == 1:
            u, a, b = _pair(steps, weights, radius, shift)
            for k in range(length):
                out[to + k] += u * (rows[a + k] + rows[b + k])
        elif radius - whole == 2:
            u, a, b = _pair(steps, weights, radius - 1, shift)
            v, c, d = _pair(steps, weights, radius, shift)
            for k in range(length):
                out[to + k] += u * (rows[a + k] + rows[b + k]) + v * (rows[c + k] + rows[d + k])


@inlined
def _copy_line(source: Any, start: Any, out: Any, out_start: Any, n: Any) -> None:
    a, b = np.uint64(start), np.uint64(out_start)
    for k in range(np.uint64(n)):
        out[b + k] = source[a + k]


@inlined
def _padded_columns(plane: Any, n1: Any, n2: Any, radius: Any, edge_twice: Any, out: Any) -> None:
    """A flat plane's lines, each with what is mirrored beyond its ends."""
    pitch = n2 + 2 * radius
    for t in range(1, radius + 1):
        before, after = reflected(-t, n2, edge_twice), reflected(n2 - 1 + t, n2, edge_twice)
        for j in range(n1):
            out[j * pitch + radius - t] = plane[j * n2 + before]
            out[j * pitch + radius + n2 - 1 + t] = plane[j * n2 + after]
    for j in range(n1):
        _copy_line(plane, j * n2, out, j * pitch + radius, n2)


@inlined
def convolved_plane(plane: Any, n1: Any, n2: Any, weights1: Any, weights2: Any, edge_twice: Any, middle: Any, padded: Any,
                    rows: Any, steps: Any, ring: Any, slot: Any) -> None:  # fmt: skip
    """Convolve a flat plane, less ``middle``, along both of its axes into a slot of the ring."""
    r1, r2 = weights1.shape[0] - 1, weights2.shape[0] - 1
    pitch = n2 + 2 * r2
    _padded_columns(plane, n1, n2, r2, edge_twice, padded)
    if middle != 0.0:
        for k in range(n1 * pitch):
            padded[k] -= middle
    block = max(1, _CHUNK // n2)
    out, start = (rows, r1 * n2) if r1 else (ring, slot)
    for j in range(0, n1, block):
        for t in range(1, r2 + 1):
            steps[0, t] = j * pitch + r2 - t
            steps[1, t] = j * pitch + r2 + t
        count = min(block, n1 - j)
        weighted_lines(padded, j * pitch + r2, pitch, steps, weights2, out, start + j * n2, n2, count, n2)
    if r1:
        for t in range(1, r1 + 1):
            _copy_line(rows, (r1 + reflected(-t, n1, edge_twice)) * n2, rows, (r1 - t) * n2, n2)
            _copy_line(rows, (r1 + reflected(n1 - 1 + t, n1, edge_twice)) * n2, rows, (r1 + n1 - 1 + t) * n2, n2)
        for f in range(0, n1 * n2, _CHUNK):
            for t in range(1, r1 + 1):
                steps[0, t] = f + (r1 - t) * n2
                steps[1, t] = f + (r1 + t) * n2
            n = min(_CHUNK, n1 * n2 - f)
            weighted_lines(rows, f + r1 * n2, _ZERO, steps, weights1, ring, slot + f, _ZERO, _ONE, n)


@windowed
@inlined
def _blend(x: Any, share: Any, at: Any, given: Any) -> Any:
    convolved, middle = given
    return x + share * (convolved[at] - (x - middle))


@kernel(
    "void(float32[:,::1], float32[:,::1], int64, float32[::1], float32[::1], float32[::1], boolean, "
    "float64[::1], float64[::1], float32[::1], float64, float64, float32)"
)
def convolve(
    source: Any, destination: Any, n2: Any, weights0: Any, weights1: Any, weights2: Any, edge_twice: Any,
    factors0: Any, factors1: Any, drop2: Any, least: Any, strength: Any, middle: Any,
) -> None:  # fmt: skip
    """Convolve a volume along its three axes, everywhere or where a window says.

    Args:
        source, destination: float32 (X, Y * Z); may be one array.
        n2: Z.
        weights0, weights1, weights2: an axis' weight at its centre, at distance 1, 2, ...
        edge_twice: how indices beyond the ends are mirrored, see `reflected`.
        factors0, factors1, drop2, least: a window (`detaug.kernels.windows`) that is multiplied by ``strength`` and
            then is the convolved volume's weight against the source's. Empty factors: no window, weight 1.
        middle: with a window, a value from which differences are taken, so that a large offset of all values costs sums no
            bits; without one it must be 0.
    """
    n0, size = source.shape
    n1 = size // n2
    r0, r1, r2 = weights0.shape[0] - 1, weights1.shape[0] - 1, weights2.shape[0] - 1
    slots = min(2 * r0 + 1, n0)
    ring = np.empty(slots * size, np.float32)
    padded = np.empty(n1 * (n2 + 2 * r2), np.float32)
    rows = np.empty((n1 + 2 * r1) * n2 if r1 else 0, np.float32)
    windowed = factors0.shape[0] > 0
    blended = np.empty(size if windowed else 0, np.float32)
    steps = np.zeros((2, max(r0, r1, r2) + 1), np.int64)
    ready = 0
    for i in range(n0):
        while ready < min(i + r0 + 1, n0):
            slot = (ready % slots) * size
            convolved_plane(
                source[ready], n1, n2, weights1, weights2, edge_twice, middle, padded, rows, steps, ring, slot
            )
            ready += 1
        out = blended if windowed else destination[i]
        for f in range(0, size, _CHUNK):
            for t in range(1, r0 + 1):
                steps[0, t] = f + (reflected(i - t, n0, edge_twice) % slots) * size
                steps[1, t] = f + (reflected(i + t, n0, edge_twice) % slots) * size
            centre = f + (i % slots) * size
            weighted_lines(ring, centre, _ZERO, steps, weights0, out, f, _ZERO, _ONE, min(_CHUNK, size - f))
        if windowed:
            _blend(
                source[i], destination[i], Window(factors0, factors1, drop2, least), i, 0.0, strength, (blended, middle)
            )


@inlined
def _sharpened(
    x: Any, left: Any, right: Any, solid: Any, before: Any, after: Any, above: Any, below: Any, strength: Any
) -> Any:
    """In float64, for the differences are small where an image is smooth."""
    middle = np.float64(x)
    around = (np.float64(left) + np.float64(right)) + (np.float64(before) + np.float64(after))
    if solid:
        rest = around + (np.float64(above) + np.float64(below))
        return np.float32(middle + strength * (6.0 * middle - rest))
    return np.float32(middle + strength * (4.0 * middle - around))


@inlined
def _sharpen_line(before: Any, plane: Any, after: Any, at: Any, above: Any, below: Any, n: Any, solid: Any,
                  strength: Any, out: Any) -> None:  # fmt: skip
    """One line from the lines next to it; beyond its ends stand its own outermost voxels."""
    a, u, d, one = np.uint64(at), np.uint64(above), np.uint64(below), np.uint64(1)
    for k in range(one, np.uint64(n - 1)):
        left, right = plane[a + k - one], plane[a + k + one]
        out[a + k] = _sharpened(
            plane[a + k], left, right, solid, before[a + k], after[a + k], plane[u + k], plane[d + k], strength
        )
    for k in (0, n - 1):
        b, left, right = at + k, plane[at + max(k - 1, 0)], plane[at + min(k + 1, n - 1)]
        out[b] = _sharpened(
            plane[b], left, right, solid, before[b], after[b], plane[above + k], plane[below + k], strength
        )


@kernel("void(float32[:,::1], float32[:,::1], int64, float64)")
def sharpen(source: Any, destination: Any, n2: Any, strength: Any) -> None:
    """``x + strength * sum of (x - neighbour)`` over the nearest neighbours along all axes of more than one voxel.

    Arrays are (X, Y * Z) of Z = ``n2``, and may be one.
    """
    n0, size = source.shape
    n1 = size // n2
    kept = np.empty((2, size), np.float32)
    for i in range(n0):
        plane = kept[i % 2]
        for k in range(size):  # one array assigned to another compiles error messages for 2 s
            plane[k] = source[i, k]
        before = kept[(i - 1) % 2] if i else plane
        after = source[i + 1] if i + 1 < n0 else plane
        for j in range(n1):
            at, above, below = j * n2, max(j - 1, 0) * n2, min(j + 1, n1 - 1) * n2
            _sharpen_line(before, plane, after, at, above, below, n2, n1 > 1, strength, destination[i])
