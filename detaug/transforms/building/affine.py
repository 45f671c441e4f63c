"""Rotation and scaling as one small matrix.

The products are written out, so that no BLAS decides about the last bit of a matrix.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from detaug.kernels.scalars import cosine, sine

Matrix = list[list[float]]

# A map without displacement passes an empty array, since kernels have one signature.
NO_DISPLACEMENT = np.empty((3, 0, 0, 0), np.float32)


def rotation(angles: Sequence[float]) -> Matrix:
    """Return a rotation matrix.

    Args:
        angles: radians. Three of them, about the first, second and third axis, give ``Rz Ry Rx``;
            the last of one or two gives the rotation of a plane.
    """
    if len(angles) < 3:
        c = cosine(angles[-1])
        s = sine(angles[-1])
        return [[c, -s], [s, c]]
    cx, cy, cz = [cosine(angle) for angle in angles]
    sx, sy, sz = [sine(angle) for angle in angles]
    about_x = [[1.0, 0.0, 0.0], [0.0, cx, -sx], [0.0, sx, cx]]
    about_y = [[cy, 0.0, sy], [0.0, 1.0, 0.0], [-sy, 0.0, cy]]
    about_z = [[cz, -sz, 0.0], [sz, cz, 0.0], [0.0, 0.0, 1.0]]
    # The order of the product is batchgeneratorsv2's: turns about different axes do not commute.
    return product(product(about_z, about_y), about_x)


def scaled(matrix: Matrix, scales: Sequence[float]) -> Matrix:
    """Return ``matrix @ diag(scales)``."""
    rows = []
    for row in matrix:
        pairs = zip(row, scales, strict=True)
        rows.append([value * scale for value, scale in pairs])
    return rows


def product(a: Matrix, b: Matrix) -> Matrix:
    """Return ``a @ b``, summed from left to right."""
    columns = list(zip(*b, strict=True))
    rows = []
    for row in a:
        rows.append([_dot(row, column) for column in columns])
    return rows


def applied(matrix: Matrix, vector: Sequence[float]) -> list[float]:
    """Return ``matrix @ vector``, summed from left to right."""
    return [_dot(row, vector) for row in matrix]


def identity(dims: int) -> Matrix:
    """Return the unit matrix."""
    matrix = [[0.0] * dims for _ in range(dims)]
    for index in range(dims):
        matrix[index][index] = 1.0
    return matrix


def _dot(a: Sequence[float], b: Sequence[float]) -> float:
    # Not `sum`: from Python 3.12 on it adds floats with compensation, and gives other last bits.
    total = 0.0
    for x, y in zip(a, b, strict=True):
        total += x * y
    return total
