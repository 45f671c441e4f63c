"""Gaussian blur: the kernel, its reach beyond the ends, and agreement with batchgeneratorsv2."""

import numpy as np
import pytest
import torch
from scipy import ndimage

from detaug.transforms.blur import GaussianBlur, kernel_size
from tests.support.transforms.generators import generator, noise

SHAPES = ((1, 20, 23, 31), (3, 33, 17, 40), (2, 31, 29), (1, 18, 64))


def exactly_blurred(channel, sigmas):
    """The same formula in float64, axis by axis."""
    result = channel.astype(np.float64)
    for axis, sigma in enumerate(sigmas):
        radius = kernel_size(sigma) // 2
        taps = np.exp(-0.5 * (np.arange(-radius, radius + 1) / max(sigma, 1e-9)) ** 2)
        result = ndimage.correlate1d(result, taps / taps.sum(), axis, mode="mirror")
    return result


def blurred(image, sigmas, applied=None):
    applied = [True] * len(image) if applied is None else applied
    params = {"apply_to_channel": applied, "sigmas": [sigmas] * sum(applied)}
    return GaussianBlur().apply({"image": image}, params)["image"]


@pytest.mark.parametrize(
    "shape", [*SHAPES, (1, 1, 9, 12), (2, 7, 1, 5), (1, 1, 1, 6), (1, 3, 2, 4), (1, 5, 1)]
)
@pytest.mark.parametrize("sigma", [0.4, 0.5, 0.75, 1.0, 2.3, 5.0])
def test_it_is_the_formula_in_float64_to_float32_rounding(shape, sigma):
    image = noise(shape)
    sigmas = [sigma * factor for factor in (1.0, 0.8, 1.1)][: len(shape) - 1]
    result = blurred(image, sigmas, [c % 2 == 0 for c in range(len(image))])
    for channel, got in zip(image[::2], result[::2], strict=True):
        np.testing.assert_allclose(got, exactly_blurred(channel, sigmas), rtol=0, atol=2e-6)
    np.testing.assert_array_equal(result[1::2], image[1::2])


@pytest.mark.parametrize("shape", SHAPES)
def test_it_agrees_with_batchgeneratorsv2_and_errs_no_more(shape):
    module = pytest.importorskip("batchgeneratorsv2.transforms.noise.gaussian_blur")
    for seed in range(8):
        image = noise(shape, seed)
        low, high = ((0.3, 1.2), (1.0, 5.0))[seed % 2]
        sigmas = [float(s) for s in generator(seed).uniform(low, high, len(shape) - 1)]
        params = {
            "apply_to_channel": torch.tensor([True] * shape[0]),
            "sigmas": [sigmas] * shape[0],
        }
        theirs = (
            module.GaussianBlurTransform()
            ._apply_to_image(torch.from_numpy(image.copy()), **params)
            .numpy()
        )
        ours = blurred(image, sigmas)
        exact = np.stack([exactly_blurred(channel, sigmas) for channel in image])
        assert np.abs(ours - theirs).max() < 3e-6
        assert np.sqrt(np.mean((ours - exact) ** 2)) <= 1.05 * np.sqrt(
            np.mean((theirs - exact) ** 2)
        )


def test_kernel_sizes_are_those_of_batchgeneratorsv2():
    module = pytest.importorskip("batchgeneratorsv2.transforms.noise.gaussian_blur")
    for sigma in np.arange(0.05, 8, 0.01):
        assert kernel_size(float(sigma)) == max(
            1, module._compute_kernel_size(float(sigma), truncate=6)
        )
