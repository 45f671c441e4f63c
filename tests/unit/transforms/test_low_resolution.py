"""Simulation of a low resolution: shapes, sampling, and agreement with batchgeneratorsv2."""

import numpy as np
import pytest
import torch
from torch.nn.functional import interpolate

from detaug.transforms.low_resolution import SimulateLowResolution
from tests.support.transforms.errors import largest_error, root_mean_square_error
from tests.support.transforms.generators import generator, noise

SHAPES = ((1, 20, 23, 31), (3, 33, 17, 40), (2, 31, 29), (1, 18, 64))


FLAT_SHAPES = ((1, 1, 9, 12), (2, 7, 1, 5), (1, 1, 1, 6), (1, 5, 1))


def simulation(scale=(0.5, 1.0)):
    return SimulateLowResolution(
        scale,
        synchronize_channels=False,
        synchronize_axes=False,
        ignore_axes=None,
    )


def exactly(channel, scales):
    """Return the same formula in float64."""
    mode = "trilinear" if channel.ndim == 3 else "bilinear"
    shape = []
    for length, scale in zip(channel.shape, scales, strict=True):
        shape.append(max(1, round(length * float(np.float32(scale)))))
    tensor = torch.from_numpy(channel.copy())[None, None]
    coarse = interpolate(tensor, shape, mode="nearest-exact").double()
    return interpolate(coarse, channel.shape, mode=mode)[0, 0].numpy()


@pytest.mark.parametrize("shape", SHAPES + FLAT_SHAPES)
@pytest.mark.parametrize("low", [0.05, 0.5, 0.9, 1.6])
def test_it_is_the_formula_in_float64_to_float32_rounding(shape, low):
    image = noise(shape)
    transform = simulation((low, low + 0.5))
    for seed in range(4):
        params = transform.sample(generator(seed), {"image": shape})
        result = transform.apply({"image": image}, params)["image"]
        for c, scales in zip(params["apply_to_channel"], params["scales"], strict=True):
            np.testing.assert_allclose(result[c], exactly(image[c], scales), rtol=0, atol=1e-6)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("offset", [0, 1e2, 1e4, -1e4])
def test_it_agrees_with_batchgeneratorsv2_and_errs_no_more(shape, offset):
    module = pytest.importorskip("batchgeneratorsv2.transforms.spatial.low_resolution")
    original = module.SimulateLowResolutionTransform((0.5, 1), False, False, None)
    for seed in range(8):
        image = noise(shape, seed) + np.float32(offset)
        params = simulation().sample(generator(seed), {"image": shape})
        result = simulation().apply({"image": image}, params)["image"]
        with_tensor = {**params, "scales": torch.tensor(params["scales"])}
        tensor = torch.from_numpy(image.copy())
        other = original._apply_to_image(tensor, **with_tensor).numpy()
        channels = zip(image, params["scales"], strict=True)
        exact = np.stack([exactly(channel, scales) for channel, scales in channels])
        assert largest_error(result, other) < 5e-5 + 1e-6 * abs(offset)
        assert largest_error(result, exact) <= max(largest_error(other, exact), 5e-7)
        if offset:
            assert root_mean_square_error(result, exact) <= root_mean_square_error(other, exact)
