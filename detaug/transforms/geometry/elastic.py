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
# weights add up to less.
_NEGLIGIBLE_BITS = 30.0

# Filters narrower than this, in voxels, are convolutions.
_NARROW = 4.0
_ONE = np.ones(1, np.float32)

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
        magnitudes: the largest absolute displacement in voxels, one per component; never less than
            1e-8.

    Returns:
        (3, X, Y, Z) float32 (of a plane X is 1, and there is no displacement along it), and each
        spatial axis' mean.
    """
    lift = 3 - len(shape)
    field = np.zeros((3, *(1,) * lift, *shape), np.float32)
    means = []
    for stream, (sigma, magnitude) in enumerate(zip(sigmas, magnitudes, strict=True)):
        component = field[lift + stream]
        flat = component.reshape(-1)
        add_normals(flat, flat, np.float32(1), *key_words(key), np.uint32(stream))
        mean = (_filter_narrowly if sigma < _NARROW else _filter_widely)(component, float(sigma))
        largest = max(-float(component.min()), float(component.max()))
        scale = np.float32(max(float(magnitude), 1e-8) / largest) if largest > 0 else np.float32(0)
        component *= scale
        means.append(mean * float(scale))
    return field, means


def _filter_narrowly(noise: np.ndarray, sigma: float) -> float:
    """Filter in place by a convolution, and return the mean of the result."""
    for axis in (2, 1, 0):  # one at a time: the filter may reach as far as the field is long
        weights = [
            _periodic_gaussian(n, sigma) if a == axis else _ONE for a, n in enumerate(noise.shape)
        ]
        convolve(noise, weights, "wrap", noise)
    return float(moments(noise.reshape(-1))[2])


def _filter_widely(noise: np.ndarray, sigma: float) -> float:
    """Filter in place by Fourier coefficients, and return the mean of the result."""
    counts = [_frequencies(n, sigma) for n in noise.shape]
    bases = [_basis(n, count) for n, count in zip(noise.shape, counts, strict=True)]
    raw = np.empty(counts, np.float32)
    project(noise, *bases, raw)
    weights = [
        _gaussian_weights(n, count, sigma) for n, count in zip(noise.shape, counts, strict=True)
    ]
    padded = -(-counts[2] // 4) * 4  # of which the kernel takes four at a time
    coefficients = np.zeros((*counts[:2], padded), np.float32)
    coefficients[:, :, : counts[2]] = (
        raw * weights[0][:, None, None] * weights[1][None, :, None] * weights[2][None, None, :]
    )
    last = np.zeros((padded, noise.shape[2]), np.float32)
    last[: counts[2]] = bases[2].T
    evaluate(coefficients, bases[0], bases[1], last, noise)
    return float(coefficients[0, 0, 0]) / math.sqrt(noise.size)


@lru_cache(maxsize=16)
def _periodic_gaussian(length: int, sigma: float) -> np.ndarray:
    """Return the filter's weights at distance 0, 1, 2 ... voxels, at most half the length.

    Half an even length away, both sides meet in one voxel.
    """
    half = length // 2
    circle = np.array([cosine(2.0 * math.pi * n / length) for n in range(length)])
    distances = np.arange(half + 1)
    total = np.zeros(half + 1)
    for f in range(half + 1):
        weight = exponential(-2.0 * (math.pi * sigma * f / length) ** 2)
        total += (weight if f == 0 or 2 * f == length else 2.0 * weight) * circle[
            f * distances % length
        ]
    weights = [value / length for value in total.tolist()]
    if 2 * half == length:
        weights[half] /= 2.0
    rest = 2.0**-_NEGLIGIBLE_BITS
    while len(weights) > 1 and 2.0 * abs(weights[-1]) <= rest:
        rest -= 2.0 * abs(weights.pop())
    return np.array(weights, np.float32)


def _frequencies(length: int, sigma: float) -> int:
    """Return how many basis functions of an axis the filter leaves.

    They are the mean, and a cosine and a sine for each frequency.
    """
    if sigma <= 0.0:
        return length
    # exp(-2 (pi sigma f / n)^2) >= negligible
    highest = math.sqrt(_NEGLIGIBLE_BITS * 0.6931471805599453 / 2.0) * length / (math.pi * sigma)
    return min(length, 2 * math.floor(min(highest, length)) + 1)


def _gaussian_weights(length: int, count: int, sigma: float) -> np.ndarray:
    frequencies = [(number + 1) // 2 for number in range(count)]
    return np.array(
        [exponential(-2.0 * (math.pi * sigma * f / length) ** 2) for f in frequencies],
        dtype=np.float64,
    )


@lru_cache(maxsize=64)
def _basis(length: int, count: int) -> np.ndarray:
    """Return the first functions 1, cos, sin, cos 2 ... at an axis' voxels, of norm 1 over these.

    Returns:
        (length, count) float32.
    """
    # cos and sin depend on f x modulo the length only: one table of the circle serves all of them
    circle = [
        (cosine(2.0 * math.pi * n / length), sine(2.0 * math.pi * n / length))
        for n in range(length)
    ]
    table = np.empty((length, count), np.float64)
    for number in range(count):
        f = (number + 1) // 2
        norm = math.sqrt((1.0 if number == 0 or 2 * f == length else 2.0) / length)
        which = 0 if number % 2 or number == 0 else 1
        table[:, number] = [circle[f * x % length][which] * norm for x in range(length)]
    return table.astype(np.float32)
