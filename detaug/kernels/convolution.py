"""Separable convolution along all three axes in one pass, and sharpening.

Kernels of the convolution are symmetric.

Volumes come with what lies beyond their ends. Plane after plane is convolved along its own two axes
into a ring of planes; where the ring holds all that a plane of the output needs, it is summed along
the first axis.

The two voxels at equal distance are added first, then multiplied by their common weight. Sums are
in float32; of each three pairs the outer, smaller ones are added first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from detaug.kernels.compiling import inlined, kernel, shared
from detaug.kernels.voxels import padded

# Voxels that are swept together, so that their sum stays in the first-level cache from sweep to
# sweep.
_CHUNK = 2048
# Not plain integers, for each of which Numba would compile what is called once more.
_ZERO = np.int64(0)
_ONE = np.int64(1)


def convolve(volume: np.ndarray, weights: Sequence[np.ndarray], mode: str, out: np.ndarray) -> None:
    """Convolve a float32 volume (X, Y, Z) along its axes into another one, or itself.

    Args:
        weights: for each axis the weight at its centre, at distance 1, 2, ..., float32.
        mode: what lies beyond the ends, see `padded`.
    """
    radii = [len(axis_weights) - 1 for axis_weights in weights]
    convolve_padded(padded(volume, [(radius, radius) for radius in radii], mode), out, *weights)


@inlined
def _pair(steps: Any, weights: Any, t: Any, shift: Any) -> Any:
    """Return the weight of two voxels at equal distance, and their indices."""
    return weights[t], np.uint64(steps[0, t] + shift), np.uint64(steps[1, t] + shift)


@shared
def weighted_lines(
    rows: Any,
    centre: Any,
    pitch: Any,
    steps: Any,
    weights: Any,
    out: Any,
    start: Any,
    out_pitch: Any,
    count: Any,
    n: Any,
) -> None:
    """Write sums of weighted voxels.

    For k < n, ``out[start + k]`` becomes

    ``weights[0] rows[centre + k] + sum over t > 0 of weights[t] (rows[steps[0, t] + k] +
    rows[steps[1, t] + k])``,

    and so on, ``count`` times in all, each time ``pitch`` and ``out_pitch`` elements further on.
    """
    radius = weights.shape[0] - 1
    whole = radius - radius % 3
    length = np.uint64(n)
    for line in range(count):
        shift = line * pitch
        to = np.uint64(start + line * out_pitch)
        middle = np.uint64(centre + shift)
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
def _symmetric(steps: Any, centre: Any, step: Any, radius: Any) -> None:
    """Write the indices at distances 1, 2 ... ``radius`` on both sides of the centre."""
    for t in range(1, radius + 1):
        steps[0, t] = centre - t * step
        steps[1, t] = centre + t * step


@kernel("void(float32[:,:,::1], float32[:,:,::1], float32[::1], float32[::1], float32[::1])")
def convolve_padded(
    source: Any, destination: Any, weights0: Any, weights1: Any, weights2: Any
) -> None:
    """Convolve a volume that is longer than ``destination`` by the weights' reach.

    It is longer at both ends of each axis.
    """
    n0, n1, n2 = destination.shape
    r0 = weights0.shape[0] - 1
    r1 = weights1.shape[0] - 1
    r2 = weights2.shape[0] - 1
    lines = n1 + 2 * r1
    pitch = n2 + 2 * r2
    size = n1 * n2
    slots = 2 * r0 + 1
    ring = np.empty(slots * size, np.float32)
    rows = np.empty(lines * n2, np.float32)
    steps = np.zeros((2, max(r0, r1, r2) + 1), np.int64)
    voxels = source.reshape(-1)
    result = destination.reshape(-1)
    block = max(1, _CHUNK // n2)
    for i in range(n0 + 2 * r0):
        for j in range(0, lines, block):
            centre = (i * lines + j) * pitch + r2
            _symmetric(steps, centre, 1, r2)
            weighted_lines(
                voxels, centre, pitch, steps, weights2, rows, j * n2, n2, min(block, lines - j), n2
            )
        for f in range(0, size, _CHUNK):
            centre = r1 * n2 + f
            _symmetric(steps, centre, n2, r1)
            slot = (i % slots) * size + f
            weighted_lines(
                rows, centre, _ZERO, steps, weights1, ring, slot, _ZERO, _ONE, min(_CHUNK, size - f)
            )
        plane = i - 2 * r0
        for f in range(0, size if plane >= 0 else 0, _CHUNK):
            for t in range(1, r0 + 1):
                steps[0, t] = ((plane + r0 - t) % slots) * size + f
                steps[1, t] = ((plane + r0 + t) % slots) * size + f
            centre = ((plane + r0) % slots) * size + f
            to = plane * size + f
            weighted_lines(
                ring, centre, _ZERO, steps, weights0, result, to, _ZERO, _ONE, min(_CHUNK, size - f)
            )


@kernel("void(float32[:,:,::1], float32[:,:,::1], float64)")
def sharpen_padded(source: Any, destination: Any, strength: Any) -> None:
    """Add ``strength * sum of (x - neighbour)`` over the nearest neighbours to each voxel x.

    They are those along all axes; along Y if that has several voxels.

    In float64, for the differences are small where an image is smooth.

    Args:
        source: longer than ``destination`` by one voxel at both ends of each axis.
    """
    one = np.uint64(1)
    solid = destination.shape[1] > 1
    for i in range(destination.shape[0]):
        for j in range(destination.shape[1]):
            line = source[i + 1, j + 1]
            before = source[i, j + 1]
            after = source[i + 2, j + 1]
            above = source[i + 1, j]
            below = source[i + 1, j + 2]
            out = destination[i, j]
            for k in range(np.uint64(destination.shape[2])):
                at = k + one
                x = np.float64(line[at])
                rest = (np.float64(line[k]) + np.float64(line[at + one])) + (
                    np.float64(before[at]) + np.float64(after[at])
                )
                if solid:
                    rest = rest + (np.float64(above[at]) + np.float64(below[at]))
                out[k] = np.float32(x + strength * ((6.0 if solid else 4.0) * x - rest))
