"""Gaussian and Rician noise: the formulas in float64, their fields, what is drawn."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from detaug.transforms.noise import GaussianNoise, RicianNoise
from tests.support.transforms.generators import normals, scan

SHAPES = [(1, 20, 24, 28), (3, 30, 17), (4, 5, 1, 31), (2, 1, 40)]


def rician(image, params):
    x, sigma, space = image.astype(np.float64), params["variance"], image.shape[1:]
    real = np.stack([normals(space, params["key"], 2 * c) for c in range(len(x))])
    imaginary = np.stack([normals(space, params["key"], 2 * c + 1) for c in range(len(x))])
    noisy = np.hypot(x - x.min() + sigma * real, sigma * imaginary)
    return (noisy - noisy.mean()) / noisy.std() * x.std() + x.mean()


@pytest.mark.parametrize("shape", SHAPES)
def test_gaussian_noise_is_sigma_times_the_field_of_each_channels_stream(shape):
    image = scan(shape)
    transform = GaussianNoise((0.1, 0.5), p_per_channel=0.7)
    params = transform.sample(np.random.default_rng(1), {"image": shape})
    exact = image.astype(np.float64)
    for c, sigma in zip(params["apply_to_channel"], params["sigmas"], strict=True):
        exact[c] += sigma * normals(shape[1:], params["key"], c)
    found = transform.apply({"image": image}, params)["image"]
    assert np.abs(found - exact).max() <= 2.0**-23 * np.abs(exact).max()


@pytest.mark.parametrize("shape", SHAPES)
def test_rician_noise_is_its_formula_in_float64(shape):
    for seed in range(3):
        image = scan(shape, seed)
        params = RicianNoise((0.05, 3)).sample(np.random.default_rng(seed), {"image": shape})
        found = RicianNoise().apply({"image": image}, params)["image"]
        exact = rician(image, params)
        assert np.abs(found - exact).max() <= 2.0**-22 * max(np.abs(exact).max(), np.ptp(image))


def test_both_are_distributed_as_the_originals():
    pytest.importorskip("batchgeneratorsv2")
    from batchgeneratorsv2.transforms.intensity.gaussian_noise import GaussianNoiseTransform
    from batchgeneratorsv2.transforms.noise.rician import RicianNoiseTransform

    torch.manual_seed(0)
    image = np.linspace(0, 1, 30_000, dtype=np.float32).reshape(1, 30, 1000)
    for ours, theirs in (
        (GaussianNoise(0.2), GaussianNoiseTransform(0.2)),
        (RicianNoise(0.2), RicianNoiseTransform((0.2, 0.2))),
    ):
        found = ours(image=image, rng=np.random.default_rng(0))["image"]
        other = theirs(image=torch.from_numpy(image.copy()))["image"].numpy()
        for part in (slice(0, 10), slice(10, 20), slice(20, 30)):
            assert stats.ks_2samp(found[0, part].ravel(), other[0, part].ravel()).pvalue > 1e-3


def test_nan_and_infinity():
    image = scan((1, 6, 7))
    image[0, 0, :2] = np.nan, np.inf
    found = GaussianNoise(0.1)(image=image, rng=np.random.default_rng(0))["image"]
    assert np.isnan(found[0, 0, 0])
    assert found[0, 0, 1] == np.inf
    assert np.isfinite(found.ravel()[2:]).all()
    assert np.isnan(RicianNoise(0.1)(image=image, rng=np.random.default_rng(0))["image"]).all()


def test_one_voxel_and_a_constant_image_get_the_mean_back():
    one = RicianNoise(0.1)(image=np.full((1, 1, 1), 3.5, np.float32), rng=np.random.default_rng(0))[
        "image"
    ]
    assert one.tolist() == [[[3.5]]]
    constant = RicianNoise(0.1)(
        image=np.full((1, 9, 9), 3.5, np.float32), rng=np.random.default_rng(0)
    )["image"]
    np.testing.assert_allclose(constant, 3.5)
