"""Displacement fields against SciPy's Fourier filter in float64."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.ndimage import fourier_gaussian

from detaug.transforms.geometry.elastic import displacement
from tests.support.transforms.generators import normals

KEY = 0x0123_4567_89AB_CDEF


def filtered_noise(
    shape: tuple[int, ...], stream: int, sigma: float, magnitude: float
) -> np.ndarray:
    """Return noise after a Gaussian filter, scaled to this largest absolute value, in float64."""
    spectrum = np.fft.fftn(normals(shape, KEY, stream).astype(np.float64))
    field = np.fft.ifftn(fourier_gaussian(spectrum, sigma)).real
    return field * magnitude / np.abs(field).max()


@pytest.mark.parametrize("shape", [(24, 17, 33), (31, 40), (1, 20, 9), (8, 1)])
@pytest.mark.parametrize("sigma", [0.0, 0.4, 1.3, 3.0, 9.0, 100.0])
def test_a_field_is_gaussian_filtered_noise_of_the_wanted_magnitude(
    shape: tuple[int, ...], sigma: float
) -> None:
    dims = len(shape)
    magnitudes = [1.0, 2.5, 0.2][:dims]
    array, means = displacement(shape, KEY, [sigma] * dims, magnitudes)
    array = array[3 - dims :].reshape(dims, *shape)
    for axis in range(dims):
        expected = filtered_noise(shape, axis, sigma, magnitudes[axis])
        assert np.abs(array[axis] - expected).max() < 3e-6 * magnitudes[axis]
        assert abs(means[axis] - expected.mean()) < 1e-6 * magnitudes[axis]


def test_a_magnitude_of_zero_is_hardly_a_displacement() -> None:
    # batchgeneratorsv2 also raises smaller magnitudes to 1e-8.
    field, _ = displacement((9, 9), KEY, [2.0, 2.0], [0.0, 0.0])
    assert np.abs(field).max() <= 1.1e-8
