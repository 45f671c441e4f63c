"""Smooth random displacement fields: white noise under a periodic Gaussian filter.

The filter multiplies the coefficient of frequency f along an axis of n voxels by exp(-2 π² σ² f² / n²). A wide filter leaves
only a few low frequencies: the field is kept as these Fourier coefficients, and evaluated plane by plane where it is needed
instead of being stored. Bases are orthonormal, real, and given as (voxels, frequencies) matrices. A narrow filter leaves
nearly all frequencies, but draws on few voxels: it is a convolution.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from detaug.kernels.compiling import inlined, kernel
from detaug.kernels.convolution import weighted_lines

# Voxels that are convolved together, so that their sums stay in the first-level cache.
_CHUNK = 2048
# The width of the columns of planes that are convolved along the first axis.
_COLUMN = 512


@kernel("void(float32[:, :, ::1], float32[:, ::1], float32[:, ::1], float32[:, ::1], float32[:, :, ::1])")
def project(noise: Any, basis_x: Any, basis_y: Any, basis_z: Any, coefficients: Any) -> None:
    """Coefficients (Kx, Ky, Kz) of a field (X, Y, Z) in a separable basis; sums run in the order of the voxels."""
    row = np.empty(basis_z.shape[1], np.float32)
    plane = np.empty((basis_y.shape[1], basis_z.shape[1]), np.float32)
    coefficients[:] = np.float32(0)
    # rows and planes are indexed, not taken as views: a view costs atomic operations on a reference count
    for i in range(noise.shape[0]):
        plane[:] = np.float32(0)
        for j in range(noise.shape[1]):
            row[:] = np.float32(0)
            whole = noise.shape[2] // 4 * 4
            for k in range(0, whole, 4):
                a, b, c, d = noise[i, j, k], noise[i, j, k + 1], noise[i, j, k + 2], noise[i, j, k + 3]
                for n in range(row.shape[0]):
                    row[n] += (a * basis_z[k, n] + b * basis_z[k + 1, n]) + (
                        c * basis_z[k + 2, n] + d * basis_z[k + 3, n]
                    )
            for k in range(whole, noise.shape[2]):
                a = noise[i, j, k]
                for n in range(row.shape[0]):
                    row[n] += a * basis_z[k, n]
            for m in range(plane.shape[0]):
                a = basis_y[j, m]
                for n in range(row.shape[0]):
                    plane[m, n] += a * row[n]
        for f in range(coefficients.shape[0]):
            a = basis_x[i, f]
            for m in range(plane.shape[0]):
                for n in range(plane.shape[1]):
                    coefficients[f, m, n] += a * plane[m, n]


@kernel(
    "void(float32[:, :, ::1], float32[:, ::1], float32[:, ::1], float32[:, ::1], int64, float32, float32[:, ::1])",
)
def evaluate_plane(coefficients: Any, basis_x: Any, basis_y: Any, basis_z: Any, i: Any, scale: Any, out: Any) -> None:
    """``scale`` times plane i (Y, Z) of a field.

    Args:
        coefficients: (Kx, Ky, Kz), Kz a multiple of 4 (filled with zeros).
        basis_x, basis_y: (voxels, frequencies). basis_z: (Kz, voxels).
    """
    plane = np.zeros((coefficients.shape[1], coefficients.shape[2]), np.float32)
    row = np.empty(coefficients.shape[2], np.float32)
    for f in range(coefficients.shape[0]):
        a = basis_x[i, f]
        for m in range(plane.shape[0]):
            for n in range(plane.shape[1]):
                plane[m, n] += a * coefficients[f, m, n]
    for j in range(out.shape[0]):
        row[:] = np.float32(0)
        for m in range(plane.shape[0]):
            a = basis_y[j, m]
            for n in range(plane.shape[1]):
                row[n] += a * plane[m, n]
        out[j, :] = np.float32(0)
        for n in range(0, basis_z.shape[0], 4):
            a, b, c, d = row[n], row[n + 1], row[n + 2], row[n + 3]
            for k in range(out.shape[1]):
                out[j, k] += (a * basis_z[n, k] + b * basis_z[n + 1, k]) + (
                    c * basis_z[n + 2, k] + d * basis_z[n + 3, k]
                )
        for k in range(out.shape[1]):
            out[j, k] *= scale


@inlined
def _wrap_lines(lines: Any, length: Any, radius: Any, n: Any) -> None:
    """Lines ``radius ... radius + length`` of n voxels each, continued periodically on both sides."""
    for t in range(radius):
        for k in range(n):
            lines[t * n + k] = lines[(t + length) * n + k]
            lines[(radius + length + t) * n + k] = lines[(radius + t) * n + k]


@inlined
def _convolve_lines(
    lines: Any, first: Any, count: Any, n: Any, weights: Any, steps: Any, out: Any, start: Any, pitch: Any
) -> None:
    """Convolved across lines of n voxels: line ``first + m`` of the result, for m < count, is at ``start + m * pitch``."""
    radius = weights.shape[0] - 1
    centre = (first + radius) * n
    for t in range(1, radius + 1):
        steps[0, t] = centre - t * n
        steps[1, t] = centre + t * n
    weighted_lines(lines, centre, n, steps, weights, out, start, pitch, count, n)


@kernel("void(float32[:, :, ::1], float32[::1], float32[::1], float32[::1])")
def convolve_periodic(field: Any, weights0: Any, weights1: Any, weights2: Any) -> None:
    """Convolve a field (X, Y, Z) along its axes, in place. It goes on periodically beyond its ends.

    Args:
        weights0, weights1, weights2: an axis' weight at its centre, at distance 1, 2, ..., at most half its length (where
            both sides are one voxel, which is then counted twice).
    """
    n0, n1, n2 = field.shape
    size = n1 * n2
    r0, r1, r2 = weights0.shape[0] - 1, weights1.shape[0] - 1, weights2.shape[0] - 1
    whole = field.reshape(-1)
    pitch = n2 + 2 * r2
    padded = np.empty(n1 * pitch, np.float32)
    rows = np.empty((n1 + 2 * r1) * n2, np.float32)
    steps = np.zeros((2, max(r0, r1, r2) + 1), np.int64)
    block = max(1, _CHUNK // n2)
    for i in range(n0):
        for j in range(n1):
            at, line = j * pitch, i * size + j * n2
            for k in range(n2):
                padded[at + r2 + k] = whole[line + k]
            for t in range(r2):
                padded[at + t] = whole[line + n2 - r2 + t]
                padded[at + r2 + n2 + t] = whole[line + t]
        for j in range(0, n1, block):
            centre = j * pitch + r2
            for t in range(1, r2 + 1):
                steps[0, t] = centre - t
                steps[1, t] = centre + t
            weighted_lines(padded, centre, pitch, steps, weights2, rows, (r1 + j) * n2, n2, min(block, n1 - j), n2)
        _wrap_lines(rows, n1, r1, n2)
        for j in range(0, n1, block):
            _convolve_lines(rows, j, min(block, n1 - j), n2, weights1, steps, whole, i * size + j * n2, n2)
    if r0 == 0:
        return
    column = np.empty((n0 + 2 * r0) * _COLUMN, np.float32)
    block = _CHUNK // _COLUMN
    for first in range(0, size, _COLUMN):
        width = min(_COLUMN, size - first)
        for i in range(n0):
            for k in range(width):
                column[(r0 + i) * width + k] = whole[i * size + first + k]
        _wrap_lines(column, n0, r0, width)
        for i in range(0, n0, block):
            _convolve_lines(column, i, min(block, n0 - i), width, weights0, steps, whole, i * size + first, size)
