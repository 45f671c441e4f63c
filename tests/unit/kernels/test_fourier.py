"""Own Fourier transforms of every kind of length, as filters along an axis, against NumPy's in float64."""

from __future__ import annotations

import numpy as np
import pytest

from detaug.kernels.fourier import LARGEST_RADIX, plan_of, roots_of_unity
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
        shifted = [np.fft.fftshift(np.fft.fft(volume, axis=axis), axes=axis) for volume in volumes.astype(np.float64)]
        total = sum(k * gain.reshape(along) for k, gain in zip(shifted, gains, strict=True))
        exact = np.fft.ifft(np.fft.ifftshift(total, axes=axis), axis=axis).real
        found = np.empty(shape, np.float32)
        filter_axis(volumes, found, axis, gains)
        assert np.abs(found - exact).max() < 2e-6
        assert np.sqrt(np.mean((found - exact) ** 2)) < 2e-7


def is_prime(n):
    return n > 1 and all(n % factor for factor in range(2, int(n**0.5) + 1))


def test_a_plan_holds_each_frequency_once_and_no_stage_has_a_large_prime():
    for n in range(1, 300):
        plan = plan_of(n)
        assert sorted(plan.frequency) == list(range(n))
        assert max(plan.radices, default=1) <= LARGEST_RADIX
        assert (plan.frequency[plan.row] == np.arange(n)).all()
        small = all(n % prime for prime in range(LARGEST_RADIX + 1, n + 1) if is_prime(prime))
        assert np.prod(plan.radices) == n if small else np.prod(plan.radices) >= 2 * n - 1


def test_roots_of_unity_err_by_less_than_1e_15():
    for n in (1, 7, 128, 205, 1000):
        exact = np.exp(2j * np.pi * np.arange(n) / n)
        assert np.abs(roots_of_unity(n) @ (1, 1j) - exact).max() < 1e-15
