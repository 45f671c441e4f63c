"""Rotation and scaling as one small matrix, multiplied out by hand so that no BLAS has a say in its
last bit.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from detaug.kernels.scalars import cosine, sine

Matrix = list[list[float]]

NO_DISPLACEMENT = np.empty((3, 0, 0, 0), np.float32)


def rotation(angles: Sequence[float]) -> Matrix:
    """``Rz Ry Rx`` of three angles about the first, second and third axis, ``R`` of the last of one
    or two; radians.
    """
    if len(angles) < 3:
        c, s = cosine(angles[-1]), sine(angles[-1])
        return [[c, -s], [s, c]]
    (cx, cy, cz), (sx, sy, sz) = (
        [function(angle) for angle in angles] for function in (cosine, sine)
    )
    about_x = [[1.0, 0.0, 0.0], [0.0, cx, -sx], [0.0, sx, cx]]
    about_y = [[cy, 0.0, sy], [0.0, 1.0, 0.0], [-sy, 0.0, cy]]
    about_z = [[cz, -sz, 0.0], [sz, cz, 0.0], [0.0, 0.0, 1.0]]
    return product(product(about_z, about_y), about_x)


def scaled(matrix: Matrix, scales: Sequence[float]) -> Matrix:
    """``matrix @ diag(scales)``."""
    return [[value * scale for value, scale in zip(row, scales, strict=True)] for row in matrix]


def product(a: Matrix, b: Matrix) -> Matrix:
    """``a @ b``, summed from left to right."""
    return [[_dot(row, [other[n] for other in b]) for n in range(len(b[0]))] for row in a]


def applied(matrix: Matrix, vector: Sequence[float]) -> list[float]:
    """``matrix @ vector``, summed from left to right."""
    return [_dot(row, vector) for row in matrix]


def identity(dims: int) -> Matrix:
    """The unit matrix."""
    return [[1.0 if row == column else 0.0 for column in range(dims)] for row in range(dims)]


def _dot(a: Sequence[float], b: Sequence[float]) -> float:
    total = 0.0
    for x, y in zip(a, b, strict=True):
        total += x * y
    return total
