"""Artefacts of k-space against their formulas in float64, with NumPy's transforms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.fft

from detaug import fingerprint
from detaug.transforms import Ghosting, GibbsNoise
from detaug.transforms.mri.k_space import filter_axis
from tests.support.transforms.generators import noise

# One voxel, powers of 2, mixed factors, primes, nnU-Net's enlarged patches, the MNI grid.
LENGTHS = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 30, 31, 37, 64, 66, 100, 127, 193, 205, 229, 249, 1009)


@pytest.mark.parametrize("n", LENGTHS)
def test_a_filter_of_any_length_is_the_formula_in_float64(n: int) -> None:
    rng = np.random.default_rng(n)
    for shape, axis in (((n, 5, 3), 0), ((3, n, 70), 1), ((2, 37, n), 2)):
        volumes = rng.standard_normal((2, *shape)).astype(np.float32)
        gains = rng.uniform(-1, 1, (2, n))
        along_axis = [1, 1, 1]
        along_axis[axis] = n
        total = np.zeros(shape, np.complex128)
        for volume, gain in zip(volumes, gains, strict=True):
            k_space = np.fft.fft(volume.astype(np.float64), axis=axis)
            total += np.fft.fftshift(k_space, axes=axis) * gain.reshape(along_axis)
        exact = np.fft.ifft(np.fft.ifftshift(total, axes=axis), axis=axis).real
        filtered = np.empty(shape, np.float32)
        filter_axis(volumes, filtered, axis, gains)
        assert np.abs(filtered - exact).max() < 2e-6
        assert np.sqrt(np.mean((filtered - exact) ** 2)) < 2e-7


class DoublingBackend:
    """A backend for `scipy.fft` whose transforms are twice as large as they should be."""

    __ua_domain__ = "numpy.scipy.fft"

    @staticmethod
    def __ua_function__(method: Any, args: Any, kwargs: Any) -> Any:
        with scipy.fft.set_backend("scipy", only=True):
            return 2 * method(*args, **kwargs)


@pytest.mark.parametrize("transform", [Ghosting(), GibbsNoise((0.3, 0.5))])
def test_another_backend_of_scipys_transforms_is_not_used(transform: Any) -> None:
    image = noise((1, 12, 10, 9))
    params = transform.sample(np.random.default_rng(0), {"image": image.shape})
    usual = fingerprint(transform.apply({"image": image}, params))
    with scipy.fft.set_backend(DoublingBackend):
        assert np.allclose(scipy.fft.fft([1.0, 0.0]), 2)
        assert fingerprint(transform.apply({"image": image}, params)) == usual
