"""Gaussian and Rician noise, against their formulas in float64 and batchgeneratorsv2."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from detaug.transforms.noise import GaussianNoise, RicianNoise
from tests.support.transforms.errors import largest_error
from tests.support.transforms.generators import generator, normals, scan

SHAPES = [
    (1, 20, 24, 28),
    (3, 30, 17),
    (4, 5, 1, 31),
    (2, 1, 40),
]


def field(params, image, first_stream):
    """Return standard normals; channel c has those of stream ``first_stream + 2 * c``."""
    channels = []
    for c in range(len(image)):
        channels.append(normals(image.shape[1:], params["key"], first_stream + 2 * c))
    return np.stack(channels)


def rician(image, params):
    x = image.astype(np.float64)
    sigma = params["variance"]
    real = x - x.min() + sigma * field(params, image, 0)
    imaginary = sigma * field(params, image, 1)
    noisy = np.hypot(real, imaginary)
    standardized = (noisy - noisy.mean()) / noisy.std()
    return standardized * x.std() + x.mean()


@pytest.mark.parametrize("shape", SHAPES)
def test_gaussian_noise_is_sigma_times_the_field_of_each_channels_stream(shape):
    image = scan(shape)
    transform = GaussianNoise((0.1, 0.5), p_per_channel=0.7)
    params = transform.sample(generator(1), {"image": shape})
    exact = image.astype(np.float64)
    for c, sigma in zip(params["apply_to_channel"], params["sigmas"], strict=True):
        exact[c] += sigma * normals(shape[1:], params["key"], c)
    result = transform.apply({"image": image}, params)["image"]
    assert largest_error(result, exact) <= 2.0**-23 * np.abs(exact).max()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", range(3))
def test_rician_noise_is_its_formula_in_float64(shape, seed):
    image = scan(shape, seed)
    params = RicianNoise((0.05, 3)).sample(generator(seed), {"image": shape})
    result = RicianNoise().apply({"image": image}, params)["image"]
    exact = rician(image, params)
    largest = max(np.abs(exact).max(), np.ptp(image))
    assert largest_error(result, exact) <= 2.0**-22 * largest


GAUSSIAN = "intensity.gaussian_noise.GaussianNoiseTransform"
RICIAN = "noise.rician.RicianNoiseTransform"


@pytest.mark.parametrize(
    ("transform", "name", "variance"),
    [
        (GaussianNoise(0.2), GAUSSIAN, 0.2),
        (RicianNoise(0.2), RICIAN, (0.2, 0.2)),
    ],
)
def test_both_are_distributed_as_the_originals(transform, name, variance):
    module_name, _, class_name = name.rpartition(".")
    module = pytest.importorskip(f"batchgeneratorsv2.transforms.{module_name}")
    original = getattr(module, class_name)(variance)
    torch.manual_seed(0)
    image = np.linspace(0, 1, 30_000, dtype=np.float32).reshape(1, 30, 1000)
    result = transform(image=image, rng=generator())["image"][0]
    other = original(image=torch.from_numpy(image.copy()))["image"][0].numpy()
    for rows in (slice(0, 10), slice(10, 20), slice(20, 30)):
        test = stats.ks_2samp(result[rows].ravel(), other[rows].ravel())
        assert test.pvalue > 1e-3


def test_nan_and_infinity():
    image = scan((1, 6, 7))
    image[0, 0, 0] = np.nan
    image[0, 0, 1] = np.inf
    noisy = GaussianNoise(0.1)(image=image, rng=generator())["image"]
    with_nan, with_infinity, *others = noisy.ravel()
    assert np.isnan(with_nan)
    assert with_infinity == np.inf
    assert np.isfinite(others).all()
    rician_result = RicianNoise(0.1)(image=image, rng=generator())["image"]
    assert np.isnan(rician_result).all()


@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 9, 9)])
def test_one_voxel_and_a_constant_image_get_the_mean_back(shape):
    image = np.full(shape, 3.5, np.float32)
    result = RicianNoise(0.1)(image=image, rng=generator())["image"]
    np.testing.assert_allclose(result, 3.5)
