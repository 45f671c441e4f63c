"""Sharpening by the Laplacian of a voxel's nearest neighbours, in one pass, in place if wanted."""

from __future__ import annotations

from typing import Any

import numpy as np

from detaug.kernels.compiling import inlined, kernel


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
        left, right = plane[at + max(k - 1, 0)], plane[at + min(k + 1, n - 1)]
        out[at + k] = _sharpened(
            plane[at + k],
            left,
            right,
            solid,
            before[at + k],
            after[at + k],
            plane[above + k],
            plane[below + k],
            strength,
        )


@kernel("void(float32[:,::1], float32[:,::1], int64, float64)")
def sharpen(source: Any, destination: Any, n2: Any, strength: Any) -> None:
    """``x + strength * sum of (x - neighbour)`` over the nearest neighbours along all axes of more than one voxel.

    Args:
        source, destination: float32 (X, Y * Z); may be one array.
        n2: Z.
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
