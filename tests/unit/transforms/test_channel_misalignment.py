"""Channels out of register with the others."""

import math

import numpy as np
import pytest
import torch
from scipy import ndimage

from detaug.transforms.mri.channel_misalignment import ChannelMisalignment
from tests.support.transforms.generators import noise


def always(dims, channels=(0,)):
    return ChannelMisalignment(
        channels, (0.2, 0.3, 0.1)[:dims], 1, (12, 10, 15)[:dims], "deg", 1, (2, 3, 2)[:dims], 1
    )


def resampled(channel, affine, shift):
    """In float64: linear interpolation, 0 outside, then the shift."""
    per_axis = (-1,) + (1,) * channel.ndim
    space = np.reshape(channel.shape, per_axis)
    grid = np.indices(channel.shape) + np.reshape(shift, per_axis)
    where = np.tensordot(affine, grid - (space - 1) / 2, 1) + (space - 1) / 2
    found = ndimage.map_coordinates(channel, where, order=1, mode="grid-constant")
    return np.where(((grid >= 0) & (grid < space)).all(axis=0), found, 0)


@pytest.mark.parametrize("shape", [(3, 14, 11, 16), (2, 17, 12), (1, 1, 9, 8), (1, 9, 1)])
def test_channels_are_where_a_float64_computation_has_them(shape):
    transform, image = always(len(shape) - 1, (-1,)), noise(shape)
    for seed in range(12):
        params = transform.sample(np.random.default_rng(seed), {"image": shape})
        shift = [
            math.floor(c) - n // 2
            for c, n in zip(params["center_location_in_pixels"], shape[1:], strict=True)
        ]
        result = transform.apply({"image": image}, params)["image"]
        expected = resampled(image[-1].astype(np.float64), params["affine"], shift)
        np.testing.assert_allclose(result[-1], expected, atol=2e-6)
        np.testing.assert_array_equal(result[:-1], image[:-1])


@pytest.mark.parametrize("shape", [(3, 14, 11, 16), (2, 17, 12)])
@pytest.mark.parametrize("gates", [(1, 1, 1), (0, 0, 1), (1, 0, 0), (0, 1, 1)])
def test_results_are_those_of_batchgeneratorsv2(shape, gates):
    module = pytest.importorskip("batchgeneratorsv2.transforms.spatial.channel_misalignment")
    arguments = (
        [0, 1],
        (0.2, 0.1, 0.1),
        gates[0],
        (12, 10, 15),
        "deg",
        gates[1],
        (2, 3, 2),
        gates[2],
    )
    ours, theirs = ChannelMisalignment(*arguments), module.ChannelMisalignmentTransform(*arguments)
    for seed in range(8):
        image = torch.from_numpy(noise(shape, seed))
        params = ours.sample(np.random.default_rng(seed), {"image": shape})
        result = ours.apply({"image": image}, params)["image"]
        affine = None if params["affine"] is None else np.array(params["affine"])
        expected = theirs._apply_to_image(image.clone(), **{**params, "affine": affine})
        assert (result - expected).abs().max() < 5e-4


def test_large_angles_in_radians_are_warned_of():
    with pytest.warns(UserWarning, match="15°"):
        ChannelMisalignment(rotation_ax_cor_sag=(0.5, 0, 0), rad_or_deg="rad")
