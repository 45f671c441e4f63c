"""Gaussian blur: the kernel, its reach beyond the ends, and agreement with batchgeneratorsv2."""

import numpy as np
import pytest
import torch
from scipy import ndimage

from detaug.transforms.blur import GaussianBlur, kernel_size
from tests.support.transforms.errors import largest_error, root_mean_square_error
from tests.support.transforms.generators import generator, noise

SHAPES = ((1, 20, 23, 31), (3, 33, 17, 40), (2, 31, 29), (1, 18, 64))


def exactly_blurred(channel, sigmas):
    """Return the same formula in float64, axis by axis."""
    result = channel.astype(np.float64)
    for axis, sigma in enumerate(sigmas):
        radius = kernel_size(sigma) // 2
        distances = np.arange(-radius, radius + 1) / max(sigma, 1e-9)
        taps = np.exp(-0.5 * distances**2)
        result = ndimage.correlate1d(result, taps / taps.sum(), axis, mode="mirror")
    return result


def blurred(image, sigmas, is_blurred):
    params = {"apply_to_channel": is_blurred, "sigmas": [sigmas] * sum(is_blurred)}
    return GaussianBlur().apply({"image": image}, params)["image"]


FLAT_SHAPES = ((1, 1, 9, 12), (2, 7, 1, 5), (1, 1, 1, 6), (1, 3, 2, 4), (1, 5, 1))


@pytest.mark.parametrize("shape", SHAPES + FLAT_SHAPES)
@pytest.mark.parametrize("sigma", [0.4, 0.5, 0.75, 1.0, 2.3, 5.0])
def test_it_is_the_formula_in_float64_to_float32_rounding(shape, sigma):
    image = noise(shape)
    axes = len(shape) - 1
    sigmas = [sigma, sigma * 0.8, sigma * 1.1][:axes]
    is_blurred = [c % 2 == 0 for c in range(len(image))]
    result = blurred(image, sigmas, is_blurred)
    for channel, changed in zip(image[::2], result[::2], strict=True):
        np.testing.assert_allclose(changed, exactly_blurred(channel, sigmas), rtol=0, atol=2e-6)
    np.testing.assert_array_equal(result[1::2], image[1::2])


#: Ranges of sigma, in voxels.
RANGES = [(0.3, 1.2), (1.0, 5.0)]


@pytest.mark.parametrize("shape", SHAPES)
def test_it_agrees_with_batchgeneratorsv2_and_errs_no_more(shape):
    module = pytest.importorskip("batchgeneratorsv2.transforms.noise.gaussian_blur")
    num_channels, *space = shape
    for seed in range(8):
        image = noise(shape, seed)
        low, high = RANGES[seed % 2]
        sigmas = generator(seed).uniform(low, high, len(space)).tolist()
        params = {
            "apply_to_channel": torch.ones(num_channels, dtype=torch.bool),
            "sigmas": [sigmas] * num_channels,
        }
        tensor = torch.from_numpy(image.copy())
        other = module.GaussianBlurTransform()._apply_to_image(tensor, **params).numpy()
        result = blurred(image, sigmas, [True] * num_channels)
        exact = np.stack([exactly_blurred(channel, sigmas) for channel in image])
        assert largest_error(result, other) < 3e-6
        allowed = 1.05 * root_mean_square_error(other, exact)
        assert root_mean_square_error(result, exact) <= allowed


def test_kernel_sizes_are_those_of_batchgeneratorsv2():
    module = pytest.importorskip("batchgeneratorsv2.transforms.noise.gaussian_blur")
    for sigma in np.arange(0.05, 8, 0.01).tolist():
        expected = module._compute_kernel_size(sigma, truncate=6)
        assert kernel_size(sigma) == max(1, expected)
