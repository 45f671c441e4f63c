"""Artefacts of k-space are those of TorchIO's and MONAI's own classes for the same params."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from detaug.transforms import Ghosting, GibbsNoise, Motion, Spikes
from detaug.transforms.building.affine import rotation
from detaug.transforms.mri.k_space import extended, extended_length
from tests.support.transforms.generators import noise

monai = pytest.importorskip("monai.transforms", reason="MONAI is not installed (the extra `peers`)")
torchio = pytest.importorskip("torchio", reason="TorchIO is not installed (the extra `peers`)")

SHAPES = ((24, 20, 28), (17, 9, 33), (31, 30), (9, 70), (7, 1, 12))
#: Signs of the axes: TorchIO's images are in RAS, SimpleITK's space is LPS.
_TO_LPS = (-1.0, -1.0, 1.0)


def by_torchio(
    volume: np.ndarray, name: str, shape: tuple[int, ...] | None = None, **arguments: Any
) -> np.ndarray:
    """Apply one of TorchIO's deterministic classes to a volume (D, H, W).

    Args:
        volume: the volume.
        name: of the class.
        shape: of the first voxels in whose middle physical space has its origin; None for all.
        arguments: of the class.
    """
    affine = np.eye(4)
    affine[:3, 3] = [-(length - 1) / 2 for length in shape or volume.shape]
    tensor = torch.from_numpy(volume[None].copy())
    subject = torchio.Subject(image=torchio.ScalarImage(tensor=tensor, affine=affine))
    transform = getattr(torchio, name)(**arguments)
    result: np.ndarray = transform(subject).image.data.numpy()[0]
    return result


def ghosts(volume: np.ndarray, params: dict[str, Any], num_missing: int) -> np.ndarray:
    """Return the volume with TorchIO's ghosts.

    Args:
        volume: (D, H, W).
        params: of one channel, for an image that has fewer axes.
        num_missing: number of axes of length 1 that the volume has before the image's.
    """
    return by_torchio(volume, "Ghosting", **{**params, "axis": params["axis"] + num_missing})


def spikes(volume: np.ndarray, params: dict[str, Any], num_missing: int) -> np.ndarray:
    """Return the volume with TorchIO's spikes, for arguments like those of `ghosts`.

    The spikes are applied one at a time: TorchIO measures each one by the image that already has
    those before it.
    """
    result = volume.astype(np.float64)
    for position in params["positions"]:
        positions = np.array([[0.0] * num_missing + position])
        intensity = params["intensity"]
        with_spike = by_torchio(volume, "Spike", spikes_positions=positions, intensity=intensity)
        result += with_spike - volume
    return result


def euler_degrees(matrix: np.ndarray) -> list[float]:
    """Return the angles of SimpleITK's Euler3DTransform, Rz Rx Ry, in degrees."""
    matrix = matrix * np.outer(_TO_LPS, _TO_LPS)
    about_x = math.asin(matrix[2, 1])
    about_y = math.atan2(-matrix[2, 0], matrix[2, 2])
    about_z = math.atan2(-matrix[0, 1], matrix[1, 1])
    return [math.degrees(angle) for angle in (about_x, about_y, about_z)]


def motion(volume: np.ndarray, params: dict[str, Any], num_missing: int) -> np.ndarray:
    """Return the volume with TorchIO's motion, for arguments like those of `ghosts`.

    TorchIO fills k-space along the last axis and does not extend the volume.
    """
    motion_axis = params["axis"] + num_missing
    order = [axis for axis in range(3) if axis != motion_axis]
    order.append(motion_axis)
    degrees = []
    for angles in params["rotations"]:
        matrix = np.eye(3)
        matrix[num_missing:, num_missing:] = rotation(angles)
        degrees.append(euler_degrees(matrix[np.ix_(order, order)]))
    translations = [[0.0] * num_missing + shifts for shifts in params["translations"]]
    reordered = volume.transpose(order)
    length = reordered.shape[2]
    padding = extended_length(length) - length
    moved = by_torchio(
        np.pad(reordered, [(0, 0), (0, 0), (0, padding)]),
        "Motion",
        reordered.shape,
        degrees=np.array(degrees),
        translation=np.array(translations)[:, order] * _TO_LPS,
        times=np.array(params["times"]),
        image_interpolation="linear",
    )
    return moved[..., :length].transpose(np.argsort(order))


STRONG_GHOSTS = Ghosting((1, 10), intensity=(0, 2), restore=(0, 1), synchronize_channels=False)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    ("transform", "reference", "absolute", "relative"),
    [
        (Ghosting((2, 10), synchronize_channels=False), ghosts, 1e-5, 0),
        (STRONG_GHOSTS, ghosts, 1e-5, 0),
        (Spikes((1, 4), (-3, 3), synchronize_channels=False), spikes, 0, 1e-5),
    ],
)
def test_artefacts_are_those_of_torchio(
    shape: tuple[int, ...],
    transform: Any,
    reference: Callable[..., np.ndarray],
    absolute: float,
    relative: float,
) -> None:
    num_missing = 3 - len(shape)
    volume_shape = (1,) * num_missing + shape
    for seed in range(5):
        image = noise((2, *shape), seed)
        params = transform.sample(np.random.default_rng(seed), {"image": image.shape})
        result = transform.apply({"image": image}, params)["image"]
        for channel, channel_params in zip(*params.values(), strict=True):
            volume = image[channel].reshape(volume_shape)
            expected = reference(volume, channel_params, num_missing).reshape(shape)
            bound = absolute + relative * np.abs(expected).max()
            assert np.abs(result[channel] - expected).max() < bound


@pytest.mark.parametrize("shape", [(48, 45, 56), (48, 56)])
@pytest.mark.parametrize(
    "transform", [Motion((-1, 1), (-3, 3)), Motion((-0.2, 0.2), (-3, 3), 5, axes=(0, 1))]
)
def test_where_nothing_comes_from_outside_motion_is_that_of_torchio(
    shape: tuple[int, ...], transform: Motion
) -> None:
    num_missing = 3 - len(shape)
    volume_shape = (1,) * num_missing + shape
    image = np.zeros((1, *shape), np.float32)
    # A small object, which is not part of what the ends of an axis are mirrored from.
    middle = tuple(slice(length // 2 - 3, length // 2 + 3) for length in shape)
    image[(0, *middle)] = np.abs(noise((6,) * len(shape)))
    for seed in range(5):
        params = transform.sample(np.random.default_rng(seed), {"image": image.shape})
        result = transform.apply({"image": image}, params)["image"][0]
        volume = image[0].reshape(volume_shape)
        expected = motion(volume, params["motions"][0], num_missing).reshape(shape)
        assert np.abs(result - expected).max() < 5e-6


def waves() -> list[np.ndarray]:
    """Return images whose k-space has one frequency: a constant and two waves."""
    i, j, k = np.indices((12, 10, 16))
    cycles = 3 * i / 12 + j / 10 - 7 * k / 16
    return [
        np.ones((12, 10, 16)),
        np.cos(2 * np.pi * cycles),
        (-1.0) ** (i + j + k),
    ]


def test_the_largest_coefficient_is_found_wherever_it_is() -> None:
    """TorchIO's default of a spike is 1 to 3 times the largest coefficient."""
    spike = {"positions": [[0.1, 0.2, 0.3]], "intensity": 2.0}
    params = {"apply_to_channel": [0], "spikes": [spike]}
    for wave in waves():
        image = wave.astype(np.float32)
        result = Spikes().apply({"image": image[None]}, params)["image"][0]
        np.testing.assert_allclose(result, spikes(image, spike, 0), atol=3e-6)


@pytest.mark.parametrize("alpha", [0.1, 0.35, 0.6, 0.95])
@pytest.mark.parametrize("shape", [(32, 40, 24), (40, 40, 40), (48, 64), (72, 8)])
def test_gibbs_ringing_is_that_of_monai_of_an_extended_image(
    shape: tuple[int, ...], alpha: float
) -> None:
    """All axes are extended by an eighth, so that MONAI's ball in k-space is the same."""
    image = noise((1, *shape))
    whole = image[0]
    for axis in range(len(shape)):
        whole = extended(whole, axis)
    assert whole.shape == tuple(length * 9 // 8 for length in shape)
    ringing = np.asarray(monai.GibbsNoise(alpha)(torch.from_numpy(whole[None])))[0]
    expected = ringing[tuple(map(slice, shape))]
    params = {"apply_to_channel": [0], "alphas": [alpha]}
    result = GibbsNoise().apply({"image": image}, params)["image"][0]
    assert np.abs(result - expected).max() < 1e-5
