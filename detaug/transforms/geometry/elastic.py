"""Elastic deformation: a smooth random displacement of every voxel of a patch.

Each component is white noise under a periodic Gaussian filter, scaled so that its largest absolute
value anywhere in the patch is the wanted magnitude. This is the method of batchgenerators'
`augment_spatial_2` and of batchgeneratorsv2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from detaug.kernels.convolution import convolve, convolve_padded
from detaug.kernels.displacement import evaluate, project
from detaug.kernels.normals import add_normals
from detaug.kernels.scalars import cosine, exponential, sine
from detaug.kernels.statistics import moments
from detaug.kernels.threefry import key_words
from detaug.kernels.voxels import pick

# A frequency that the filter weakens to less than 2**-30 is left out, and so are voxels whose
# weights add up to less: float32 sums would not show them.
_NEGLIGIBLE_BITS = 30.0

# Voxels. A narrower filter leaves nearly all frequencies, but draws on few voxels: it is a
# convolution.
_NARROW = 4.0
_UNCHANGED = np.ones(1, np.float32)
# Voxels. batchgeneratorsv2 clips magnitudes likewise.
_LEAST_MAGNITUDE = 1e-8
_LN2 = 0.6931471805599453

KERNELS = (add_normals, project, evaluate, convolve_padded, pick, moments)


def displacement(
    shape: Sequence[int], key: int, sigmas: Sequence[float], magnitudes: Sequence[float]
) -> tuple[np.ndarray, list[float]]:
    """Return the displacement of a patch's voxels, in voxels.

    Args:
        shape: (X, Y, Z) or (X, Y), the patch.
        key: 64 bits; component d is filtered from the normals of stream d under it
            (`detaug.kernels.normals`), in the order of the array.
        sigmas: of the Gaussian filter, in voxels, one per component (each holds for all axes).
        magnitudes: the wanted largest absolute displacement in voxels, one per component (see
            `largest_displacement`).

    Returns:
        (3, X, Y, Z) float32 (of a plane X is 1, and there is no displacement along it), and each
        spatial axis' mean.
    """
    num_missing_axes = 3 - len(shape)
    field = np.zeros((3, *(1,) * num_missing_axes, *shape), np.float32)
    means = []
    for stream, (sigma, magnitude) in enumerate(zip(sigmas, magnitudes, strict=True)):
        # Each component has a stream of its own, so that no axis depends on the others.
        component = field[num_missing_axes + stream]
        values = component.reshape(-1)
        add_normals(values, values, np.float32(1), *key_words(key), np.uint32(stream))
        if sigma < _NARROW:
            mean = _filter_narrowly(component, float(sigma))
        else:
            mean = _filter_widely(component, float(sigma))
        # Scaled by the largest value that occurs: no displacement may exceed the magnitude.
        largest = max(-float(component.min()), float(component.max()))
        scale = np.float32(0)
        if largest > 0:
            scale = np.float32(largest_displacement(magnitude) / largest)
        # The mean is scaled likewise, since callers may move the patch back by it.
        component *= scale
        means.append(mean * float(scale))
    return field, means


def largest_displacement(magnitude: float) -> float:
    """Return the largest absolute displacement, in voxels, that a magnitude gives."""
    return max(float(magnitude), _LEAST_MAGNITUDE)


def _filter_narrowly(noise: np.ndarray, sigma: float) -> float:
    """Filter in place by a convolution, and return the mean of the result.

    Args:
        noise: (X, Y, Z) float32.
        sigma: in voxels.
    """
    # One axis at a time, because the filter may reach as far as the field is long.
    for axis in (2, 1, 0):
        weights = [_UNCHANGED] * 3
        weights[axis] = _periodic_gaussian(noise.shape[axis], sigma)
        convolve(noise, weights, "wrap", noise)
    _, _, mean, _ = moments(noise.reshape(-1))
    return float(mean)


def _filter_widely(noise: np.ndarray, sigma: float) -> float:
    """Filter in place by Fourier coefficients, and return the mean of the result.

    Args:
        noise: (X, Y, Z) float32.
        sigma: in voxels.
    """
    counts = [_num_functions(n, sigma) for n in noise.shape]
    bases = [_basis(n, count) for n, count in zip(noise.shape, counts, strict=True)]
    raw = np.empty(counts, np.float32)
    project(noise, *bases, raw)
    weighted = raw.astype(np.float64)
    for axis, (n, count) in enumerate(zip(noise.shape, counts, strict=True)):
        along_axis = [1, 1, 1]
        along_axis[axis] = count
        weighted *= _gaussian_weights(n, count, sigma).reshape(along_axis)
    # The kernel takes four functions along Z at a time: zeros fill the last four up.
    count_x, count_y, count_z = counts
    padded_z = math.ceil(count_z / 4) * 4
    coefficients = np.zeros((count_x, count_y, padded_z), np.float32)
    coefficients[:, :, :count_z] = weighted
    x_basis, y_basis, z_basis = bases
    padded_z_basis = np.zeros((padded_z, noise.shape[2]), np.float32)
    padded_z_basis[:count_z] = z_basis.T
    evaluate(coefficients, x_basis, y_basis, padded_z_basis, noise)
    # Of all functions only the constant one, 1 / sqrt(voxels), has a mean.
    return float(coefficients[0, 0, 0]) / math.sqrt(noise.size)


def _weakening(frequency: int, length: int, sigma: float) -> float:
    """Return the filter's factor for a frequency, ``exp(-2 (pi sigma f / n)^2)``.

    Args:
        frequency: periods along the axis.
        length: of the axis, in voxels.
        sigma: in voxels.
    """
    return exponential(-2.0 * (math.pi * sigma * frequency / length) ** 2)


@lru_cache(maxsize=16)
def _periodic_gaussian(length: int, sigma: float) -> np.ndarray:
    """Return the filter's weights at distance 0, 1, 2 ... voxels, at most half the length.

    Half an even length away, both sides meet in one voxel.
    """
    half = length // 2
    cosines = np.array([cosine(2.0 * math.pi * n / length) for n in range(length)])
    distances = np.arange(half + 1)
    # The inverse Fourier transform of the factors, summed from the lowest frequency up.
    total = np.zeros(half + 1)
    for f in range(half + 1):
        weight = _weakening(f, length, sigma)
        has_negative = f != 0 and 2 * f != length
        if has_negative:
            weight = 2.0 * weight
        total += weight * cosines[f * distances % length]
    weights = [value / length for value in total.tolist()]
    if 2 * half == length:
        weights[half] /= 2.0
    rest = 2.0**-_NEGLIGIBLE_BITS
    while len(weights) > 1 and 2.0 * abs(weights[-1]) <= rest:
        rest -= 2.0 * abs(weights.pop())
    return np.array(weights, np.float32)


def _num_functions(length: int, sigma: float) -> int:
    """Return how many basis functions of an axis the filter leaves.

    They are the mean, and a cosine and a sine for each frequency.
    """
    if sigma <= 0.0:
        return length
    # exp(-2 (pi sigma f / n)^2) >= 2^-bits, solved for f.
    highest = math.sqrt(_NEGLIGIBLE_BITS * _LN2 / 2.0) * length / (math.pi * sigma)
    return min(length, 2 * math.floor(min(highest, length)) + 1)


def _gaussian_weights(length: int, count: int, sigma: float) -> np.ndarray:
    """Return the filter's factor for each of an axis' basis functions, (count,) float64."""
    return np.array([_weakening((index + 1) // 2, length, sigma) for index in range(count)])


@lru_cache(maxsize=64)
def _basis(length: int, count: int) -> np.ndarray:
    """Return the first functions 1, cos, sin, cos 2 ... at an axis' voxels, of norm 1 over these.

    Returns:
        (length, count) float32.
    """
    # cos and sin depend on f x modulo the length only: one table of the circle serves all of them.
    angles = [2.0 * math.pi * n / length for n in range(length)]
    cosines = [cosine(angle) for angle in angles]
    sines = [sine(angle) for angle in angles]
    table = np.empty((length, count), np.float64)
    for index in range(count):
        f = (index + 1) // 2
        # The mean square is 1 for the constant function and for the one that alternates between
        # 1 and -1, and 1/2 for all others.
        inverse_mean_square = 2.0
        if index == 0 or 2 * f == length:
            inverse_mean_square = 1.0
        norm = math.sqrt(inverse_mean_square / length)
        is_sine = index > 0 and index % 2 == 0
        circle = sines if is_sine else cosines
        table[:, index] = [circle[f * x % length] * norm for x in range(length)]
    return table.astype(np.float32)
