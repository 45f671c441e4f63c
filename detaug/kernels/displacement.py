"""Smooth random displacement fields: white noise under a periodic Gaussian filter.

The filter multiplies the coefficient of frequency f along an axis of n voxels by exp(-2 π² σ² f² /
n²). A wide filter leaves only a few low frequencies, whose Fourier coefficients the field is
computed from. Bases are orthonormal, real, and given as (voxels, frequencies) matrices. A narrow
filter leaves nearly all frequencies, but draws on few voxels: it is a convolution.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from detaug.kernels.compiling import kernel

#: The types of both kernels: a field or coefficients, three bases, coefficients or a field.
_TYPES = (
    "void(float32[:, :, ::1], float32[:, ::1], float32[:, ::1], float32[:, ::1],"
    " float32[:, :, ::1])"
)


@kernel(_TYPES)
def project(noise: Any, basis_x: Any, basis_y: Any, basis_z: Any, coefficients: Any) -> None:
    """Project a field on a separable basis, summing in the order of the voxels.

    Args:
        noise: (X, Y, Z), the field.
        basis_x, basis_y, basis_z: (voxels, frequencies).
        coefficients: (Kx, Ky, Kz), the result.
    """
    row = np.empty(basis_z.shape[1], np.float32)
    plane = np.empty((basis_y.shape[1], basis_z.shape[1]), np.float32)
    coefficients[:] = np.float32(0)
    # Rows and planes are indexed, not taken as views: a view costs atomic operations on a reference
    # count.
    for i in range(noise.shape[0]):
        plane[:] = np.float32(0)
        for j in range(noise.shape[1]):
            row[:] = np.float32(0)
            # Four voxels at a time: a row of sums is read and written once for all four.
            whole = noise.shape[2] // 4 * 4
            for k in range(0, whole, 4):
                a = noise[i, j, k]
                b = noise[i, j, k + 1]
                c = noise[i, j, k + 2]
                d = noise[i, j, k + 3]
                for n in range(row.shape[0]):
                    first_two = a * basis_z[k, n] + b * basis_z[k + 1, n]
                    last_two = c * basis_z[k + 2, n] + d * basis_z[k + 3, n]
                    row[n] += first_two + last_two
            for k in range(whole, noise.shape[2]):
                voxel = noise[i, j, k]
                for n in range(row.shape[0]):
                    row[n] += voxel * basis_z[k, n]
            for m in range(plane.shape[0]):
                factor_y = basis_y[j, m]
                for n in range(row.shape[0]):
                    plane[m, n] += factor_y * row[n]
        for f in range(coefficients.shape[0]):
            factor_x = basis_x[i, f]
            for m in range(plane.shape[0]):
                for n in range(plane.shape[1]):
                    coefficients[f, m, n] += factor_x * plane[m, n]


@kernel(_TYPES)
def evaluate(coefficients: Any, basis_x: Any, basis_y: Any, basis_z: Any, out: Any) -> None:
    """Evaluate a field, plane by plane.

    Args:
        coefficients: (Kx, Ky, Kz), Kz a multiple of 4 (filled with zeros).
        basis_x, basis_y: (voxels, frequencies).
        basis_z: (Kz, voxels): transposed, for the innermost loop runs along voxels.
        out: (X, Y, Z), the field.
    """
    plane = np.empty((coefficients.shape[1], coefficients.shape[2]), np.float32)
    row = np.empty(coefficients.shape[2], np.float32)
    for i in range(out.shape[0]):
        plane[:] = np.float32(0)
        for f in range(coefficients.shape[0]):
            factor_x = basis_x[i, f]
            for m in range(plane.shape[0]):
                for n in range(plane.shape[1]):
                    plane[m, n] += factor_x * coefficients[f, m, n]
        for j in range(out.shape[1]):
            row[:] = np.float32(0)
            for m in range(plane.shape[0]):
                factor_y = basis_y[j, m]
                for n in range(plane.shape[1]):
                    row[n] += factor_y * plane[m, n]
            line = out[i, j]
            # The field itself holds the sums: no further memory is read or written.
            line[:] = np.float32(0)
            # Four frequencies at a time, as in `project`.
            for n in range(0, basis_z.shape[0], 4):
                a = row[n]
                b = row[n + 1]
                c = row[n + 2]
                d = row[n + 3]
                for k in range(line.shape[0]):
                    first_two = a * basis_z[n, k] + b * basis_z[n + 1, k]
                    last_two = c * basis_z[n + 2, k] + d * basis_z[n + 3, k]
                    line[k] += first_two + last_two
