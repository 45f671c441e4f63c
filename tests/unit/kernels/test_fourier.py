"""Own Fourier transforms of every kind of length, as filters along an axis, against NumPy's in float64."""

from __future__ import annotations

import numpy as np
import pytest

from detaug.transforms.mri.k_space import filter_axis

# one voxel; powers of 2 and 4; mixed; odd primes, alone and with others; nnU-Net's enlarged patches; the MNI grid
LENGTHS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 16, 30, 31, 32, 37, 41, 49, 60, 64, 66, 74, 97, 100, 127, 128, 193, 205, 229, 249,
           251, 254, 731, 1009)  # fmt: skip


@pytest.mark.parametrize("n", LENGTHS)
def test_a_filter_of_any_length_is_the_formula_in_float64(n):
    rng = np.random.default_rng(n)
    for shape, axis in (((n, 5, 3), 0), ((3, n, 70), 1), ((2, 37, n), 2)):
        volumes = rng.standard_normal((2, *shape)).astype(np.float32)
        gains = rng.uniform(-1, 1, (2, n))
        along = [-1 if d == axis else 1 for d in range(3)]
        shifted = [
            np.fft.fftshift(np.fft.fft(volume, axis=axis), axes=axis)
            for volume in volumes.astype(np.float64)
        ]
        total = sum(k * gain.reshape(along) for k, gain in zip(shifted, gains, strict=True))
        exact = np.fft.ifft(np.fft.ifftshift(total, axes=axis), axis=axis).real
        found = np.empty(shape, np.float32)
        filter_axis(volumes, found, axis, gains)
        assert np.abs(found - exact).max() < 2e-6
        assert np.sqrt(np.mean((found - exact) ** 2)) < 2e-7
