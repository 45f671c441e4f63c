"""Ghosts, spikes, Gibbs ringing and motion: the formulas of TorchIO and MONAI with n-dimensional transforms in float64."""

from __future__ import annotations

import math

import numpy as np
import pytest

from detaug.transforms import Ghosting, GibbsNoise, Motion, Spikes
from detaug.transforms.building.affine import rotation_and_scaling
from tests.support.transforms.generators import noise

SHAPES = ((1, 20, 24, 28), (2, 17, 8, 33), (2, 31, 30), (1, 9, 70), (2, 7, 1, 12))
MAKE = {
    "Ghosting": lambda: Ghosting((2, 10), synchronize_channels=False),
    "Ghosting, restored": lambda: Ghosting((2, 10), intensity=(0, 2), restore=(0, 1), synchronize_channels=False),
    "Spikes": lambda: Spikes((1, 4), (-3, 3), synchronize_channels=False),
    "GibbsNoise": lambda: GibbsNoise(synchronize_channels=False),
    "GibbsNoise, 0": lambda: GibbsNoise(0),
    "GibbsNoise, 1": lambda: GibbsNoise(1),
    "Motion": lambda: Motion((-1, 1), (-4, 4), synchronize_channels=False),
    "Motion, other axes": lambda: Motion(num_transforms=5, axes=(0, 1), synchronize_channels=False),
}


def k_space(x):
    return np.fft.fftshift(np.fft.fftn(x))


def image_of(k):
    return np.fft.ifftn(np.fft.ifftshift(k)).real


def ghosts(x, params):
    k, axis, n = k_space(x), params["axis"], x.shape[params["axis"]]
    changed = np.moveaxis(k.copy(), axis, 0)
    changed[:: params["num_ghosts"]] *= 1 - params["intensity"]
    half = None if params["restore"] is None else round(params["restore"] * n) // 2
    kept = slice(n // 2, n // 2 + 1) if half is None else slice(n // 2 - half, n // 2 + half)
    changed[kept] = np.moveaxis(k, axis, 0)[kept]
    return image_of(np.moveaxis(changed, 0, axis))


def spikes(x, params):
    k = k_space(x)
    largest = np.abs(k).max()
    for position in params["positions"]:
        k[tuple(math.floor(p * n) for p, n in zip(position, x.shape, strict=True))] += params["intensity"] * largest
    return image_of(k)


def gibbs(x, alpha):
    squares = sum((index - (n - 1) / 2) ** 2 for index, n in zip(np.indices(x.shape), x.shape, strict=True))
    return image_of(k_space(x) * (np.sqrt(squares) <= (1 - alpha) * max(x.shape) * math.sqrt(2) / 2))


def moved(x, angles, translation):
    """ITK's linear interpolation: values are held for half a voxel, and beyond is the least one."""
    ndimage = pytest.importorskip("scipy.ndimage")
    matrix, middle = np.array(rotation_and_scaling(angles, [1.0] * x.ndim)), (np.array(x.shape) - 1) / 2
    offsets = np.moveaxis(np.indices(x.shape), 0, -1) - middle
    places = np.moveaxis(offsets @ matrix.T + translation + middle, -1, 0)
    held = ndimage.map_coordinates(x, places, order=1, mode="nearest")
    inside = [(place >= -0.5) & (place < n - 0.5) for place, n in zip(places, x.shape, strict=True)]
    return np.where(np.all(inside, axis=0), held, x.min())


def motion(x, params):
    volumes = [x, *(moved(x, *each) for each in zip(params["rotations"], params["translations"], strict=True))]
    spectra = [np.moveaxis(k_space(volume), params["axis"], -1) for volume in volumes]
    later = [m for m, time in enumerate(params["times"]) if time > 0.5]
    middle = later[0] if later else len(spectra) - 1
    spectra[0], spectra[middle] = spectra[middle], spectra[0]
    n, start, total = x.shape[params["axis"]], 0, np.zeros_like(spectra[0])
    for spectrum, end in zip(spectra, [int(n * time) for time in params["times"]] + [n], strict=True):
        total[..., start:end] = spectrum[..., start:end]
        start = end
    return image_of(np.moveaxis(total, -1, params["axis"]))


FORMULA = {"Ghosting": ghosts, "Spikes": spikes, "GibbsNoise": gibbs, "Motion": motion}


def exactly(transform, image, params):
    """The formula, channel by channel, in float64."""
    result = image.astype(np.float64)
    channels, drawn = params.values()
    for c, each in zip(channels, drawn, strict=True):
        result[c] = FORMULA[type(transform).__name__](result[c], each)
    return result


@pytest.mark.parametrize("name", MAKE)
@pytest.mark.parametrize("shape", SHAPES)
def test_it_is_the_formula_in_float64(name, shape):
    transform = MAKE[name]()
    for seed in range(4):
        image = noise(shape, seed)
        params = transform.sample(np.random.default_rng(seed), {"image": shape})
        found = transform.apply({"image": image}, params)["image"]
        exact = exactly(transform, image, params)
        assert np.abs(found - exact).max() < 2e-6 * max(1.0, np.abs(exact).max())


def test_the_largest_coefficient_is_found_wherever_it_is():
    """A wave of a single frequency, and a constant: TorchIO's default of a spike is 1 to 3 times the largest one."""
    i, j, k = np.indices((12, 10, 16))
    for wave in (np.ones((12, 10, 16)), np.cos(2 * np.pi * (3 * i / 12 + j / 10 - 7 * k / 16)), (-1.0) ** (i + j + k)):
        image = wave[None].astype(np.float32)
        transform = Spikes(1, 2.0)
        params = {"apply_to_channel": [0], "spikes": [{"positions": [[0.1, 0.2, 0.3]], "intensity": 2.0}]}
        found = transform.apply({"image": image}, params)["image"][0]
        np.testing.assert_allclose(found, spikes(wave, params["spikes"][0]), atol=3e-6)
