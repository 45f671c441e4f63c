"""Simulation of a low resolution: shapes, sampling, and agreement with batchgeneratorsv2."""

import numpy as np
import pytest
import torch
from torch.nn.functional import interpolate

from detaug.transforms.low_resolution import SimulateLowResolution
from tests.support.transforms.generators import generator, noise

SHAPES = ((1, 20, 23, 31), (3, 33, 17, 40), (2, 31, 29), (1, 18, 64))


def simulation(
    scale=(0.5, 1.0),
    synchronize_channels=False,
    synchronize_axes=False,
    ignore_axes=None,
    **options,
):
    return SimulateLowResolution(
        scale, synchronize_channels, synchronize_axes, ignore_axes, **options
    )


def exactly(channel, scales):
    """The same formula in float64."""
    modes = {2: "bilinear", 3: "trilinear"}
    coarse = torch.from_numpy(channel.copy())[None, None]
    shape = [
        max(1, round(n * float(np.float32(s)))) for n, s in zip(channel.shape, scales, strict=True)
    ]
    coarse = interpolate(coarse, shape, mode="nearest-exact").double()
    return interpolate(coarse, channel.shape, mode=modes[channel.ndim])[0, 0].numpy()


@pytest.mark.parametrize("shape", [*SHAPES, (1, 1, 9, 12), (2, 7, 1, 5), (1, 1, 1, 6), (1, 5, 1)])
@pytest.mark.parametrize("low", [0.05, 0.5, 0.9, 1.6])
def test_it_is_the_formula_in_float64_to_float32_rounding(shape, low):
    image = noise(shape)
    for seed in range(4):
        transform = simulation((low, low + 0.5))
        params = transform.sample(generator(seed), {"image": shape})
        result = transform.apply({"image": image}, params)["image"]
        for c, scales in zip(params["apply_to_channel"], params["scales"], strict=True):
            np.testing.assert_allclose(result[c], exactly(image[c], scales), rtol=0, atol=1e-6)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("offset", [0, 1e2, 1e4, -1e4])
def test_it_agrees_with_batchgeneratorsv2_and_errs_no_more(shape, offset):
    module = pytest.importorskip("batchgeneratorsv2.transforms.spatial.low_resolution")
    theirs = module.SimulateLowResolutionTransform((0.5, 1), False, False, None)
    for seed in range(8):
        image = noise(shape, seed) + np.float32(offset)
        params = simulation().sample(generator(seed), {"image": shape})
        ours = simulation().apply({"image": image}, params)["image"]
        tensor = {**params, "scales": torch.tensor(params["scales"])}
        original = theirs._apply_to_image(torch.from_numpy(image.copy()), **tensor).numpy()
        exact = np.stack(
            [exactly(channel, s) for channel, s in zip(image, params["scales"], strict=True)]
        )
        assert np.abs(ours - original).max() < 5e-5 + 1e-6 * abs(offset)
        assert np.abs(ours - exact).max() <= max(np.abs(original - exact).max(), 5e-7)
        if offset:
            assert np.sqrt(np.mean((ours - exact) ** 2)) <= np.sqrt(
                np.mean((original - exact) ** 2)
            )
