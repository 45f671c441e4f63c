"""Elastic deformation: a smooth random displacement of every voxel of a patch.

Each component is white noise under a periodic Gaussian filter, scaled so that its largest absolute value anywhere in the
patch is the wanted magnitude. This is the method of batchgenerators' `augment_spatial_2` and of batchgeneratorsv2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from detaug.kernels.displacement import (
    convolve_periodic,
    evaluate_plane,
    project,
)
from detaug.kernels.normals import add_normals
from detaug.kernels.scalars import cosine, exponential, sine
from detaug.kernels.statistics import moments
from detaug.kernels.threefry import key_words

# A frequency that the filter weakens to less than 2**-30 is left out, and so are voxels whose weights add up to less.
_NEGLIGIBLE_BITS = 30.0

# Filters narrower than this, in voxels, are convolutions.
_NARROW = 4.0

KERNELS = (add_normals, project, evaluate_plane, convolve_periodic, moments)


class DisplacementField:
    """The displacement of a patch's voxels, in voxels, one component per spatial axis.

    Args:
        shape: (X, Y, Z) or (X, Y), the patch.
        key: 64 bits; component d is filtered from the normals of stream d under it (`detaug.kernels.normals`), in the
            order of the array.
        sigmas: of the Gaussian filter, in voxels, one per component (each holds for all axes).
        magnitudes: the largest absolute displacement in voxels, one per component; never less than 1e-8.
    """

    def __init__(self, shape: Sequence[int], key: int, sigmas: Sequence[float], magnitudes: Sequence[float]) -> None:
        self.dims = len(shape)
        self.shape = (1,) * (3 - self.dims) + tuple(shape)
        #: No displacement along an axis is larger, by more than a rounding.
        self.magnitudes = [max(abs(float(magnitude)), 1e-8) for magnitude in magnitudes]
        self._components: list[_Wide | _Narrow] = [
            (_Narrow if sigma < _NARROW else _Wide)(self.shape, key, stream, float(sigma), max(float(magnitude), 1e-8))
            for stream, (sigma, magnitude) in enumerate(zip(sigmas, magnitudes, strict=True))
        ]

    def mean(self) -> list[float]:
        """The mean displacement over the patch, one number per axis."""
        return [component.mean() for component in self._components]

    def plane(self, i: int) -> np.ndarray:
        """(3, 1, Y, Z) float32: plane `i` of the patch. A 2-D field has one plane and no displacement along the first axis."""
        out = np.zeros((3, 1, *self.shape[1:]), np.float32)
        for axis, component in enumerate(self._components, start=3 - self.dims):
            component.plane(i, out[axis, 0])
        return out


class _Wide:
    """One axis' displacement, as Fourier coefficients and a scale."""

    def __init__(self, shape: tuple[int, ...], key: int, stream: int, sigma: float, magnitude: float) -> None:
        self._shape = shape
        self._counts = tuple(_frequencies(n, sigma) for n in shape)
        bases = [_basis(n, count) for n, count in zip(shape, self._counts, strict=True)]
        noise = _white_noise(shape, key, stream)
        padded = -(-self._counts[2] // 4) * 4
        coefficients = np.zeros((*self._counts[:2], padded), np.float32)
        raw = np.empty(self._counts, np.float32)
        project(noise, *bases, raw)
        weights = [_gaussian_weights(n, count, sigma) for n, count in zip(shape, self._counts, strict=True)]
        filtered = raw * weights[0][:, None, None] * weights[1][None, :, None] * weights[2][None, None, :]
        coefficients[:, :, : self._counts[2]] = filtered
        self._coefficients = coefficients
        last = np.zeros((padded, shape[2]), np.float32)
        last[: self._counts[2]] = bases[2].T
        self._bases = (bases[0], bases[1], last)
        plane, largest = np.empty(shape[1:], np.float32), 0.0
        for i in range(shape[0]):
            evaluate_plane(coefficients, *self._bases, i, np.float32(1), plane)
            largest = max(largest, -float(plane.min()), float(plane.max()))
        self._scale = np.float32(magnitude / largest) if largest > 0 else np.float32(0)

    def mean(self) -> float:
        voxels = self._shape[0] * self._shape[1] * self._shape[2]
        return float(self._coefficients[0, 0, 0]) / math.sqrt(voxels) * float(self._scale)

    def plane(self, i: int, out: np.ndarray) -> None:
        evaluate_plane(self._coefficients, *self._bases, i, self._scale, out)


class _Narrow:
    """One axis' displacement, as an array and a scale."""

    def __init__(self, shape: tuple[int, ...], key: int, stream: int, sigma: float, magnitude: float) -> None:
        self._field = _white_noise(shape, key, stream)
        convolve_periodic(self._field, *(_periodic_gaussian(n, sigma) for n in shape))
        largest = max(-float(self._field.min()), float(self._field.max()))
        self._scale = np.float32(magnitude / largest) if largest > 0 else np.float32(0)

    def mean(self) -> float:
        return float(moments(self._field.reshape(-1))[2]) * float(self._scale)

    def plane(self, i: int, out: np.ndarray) -> None:
        np.multiply(self._field[i], self._scale, out=out)


def _white_noise(shape: tuple[int, ...], key: int, stream: int) -> np.ndarray:
    noise = np.empty(shape, np.float32)
    noise[...] = 0
    flat = noise.reshape(-1)
    add_normals(flat, flat, np.float32(1), *key_words(key), np.uint32(stream))
    return noise


@lru_cache(maxsize=16)
def _periodic_gaussian(length: int, sigma: float) -> np.ndarray:
    """The filter's weights at distance 0, 1, 2 ..., as `convolve_periodic` takes them."""
    half = length // 2
    circle = np.array([cosine(2.0 * math.pi * n / length) for n in range(length)])
    distances = np.arange(half + 1)
    total = np.zeros(half + 1)
    for f in range(half + 1):
        weight = exponential(-2.0 * (math.pi * sigma * f / length) ** 2)
        total += (weight if f == 0 or 2 * f == length else 2.0 * weight) * circle[f * distances % length]
    weights = [value / length for value in total.tolist()]
    if 2 * half == length:
        weights[half] /= 2.0
    rest = 2.0**-_NEGLIGIBLE_BITS
    while len(weights) > 1 and 2.0 * abs(weights[-1]) <= rest:
        rest -= 2.0 * abs(weights.pop())
    return np.array(weights, np.float32)


def _frequencies(length: int, sigma: float) -> int:
    """How many basis functions of an axis the filter leaves: the mean, and a cosine and a sine per frequency."""
    if sigma <= 0.0:
        return length
    # exp(-2 (pi sigma f / n)^2) >= negligible
    highest = math.sqrt(_NEGLIGIBLE_BITS * 0.6931471805599453 / 2.0) * length / (math.pi * sigma)
    return min(length, 2 * math.floor(min(highest, length)) + 1)


def _gaussian_weights(length: int, count: int, sigma: float) -> np.ndarray:
    frequencies = [(number + 1) // 2 for number in range(count)]
    return np.array([exponential(-2.0 * (math.pi * sigma * f / length) ** 2) for f in frequencies], dtype=np.float64)


@lru_cache(maxsize=64)
def _basis(length: int, count: int) -> np.ndarray:
    """(length, count) float32: the first functions 1, cos, sin, cos 2 ... at an axis' voxels, of norm 1 over these."""
    # cos and sin depend on f x modulo the length only: one table of the circle serves all of them
    circle = [(cosine(2.0 * math.pi * n / length), sine(2.0 * math.pi * n / length)) for n in range(length)]
    table = np.empty((length, count), np.float64)
    for number in range(count):
        f = (number + 1) // 2
        norm = math.sqrt((1.0 if number == 0 or 2 * f == length else 2.0) / length)
        which = 0 if number % 2 or number == 0 else 1
        table[:, number] = [circle[f * x % length][which] * norm for x in range(length)]
    return table.astype(np.float32)
