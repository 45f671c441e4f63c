"""Artefacts of k-space against TorchIO's and MONAI's own classes, at the same params."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from detaug.transforms import Ghosting, GibbsNoise, Motion, Spikes
from detaug.transforms.building.affine import rotation_and_scaling

monai = pytest.importorskip("monai.transforms", reason="MONAI is not installed (the extra `peers`)")
torchio = pytest.importorskip("torchio", reason="TorchIO is not installed (the extra `peers`)")

SHAPES = ((24, 20, 28), (17, 9, 33))


def image_of(shape: tuple[int, ...]) -> np.ndarray:
    """(1, *shape) float32: noise."""
    return np.random.default_rng(0).standard_normal((1, *shape)).astype(np.float32)


def by_torchio(image: np.ndarray, name: str, **arguments: Any) -> np.ndarray:
    """By one of its deterministic classes; the middle of the image is where its physical space has its origin."""
    affine = np.eye(4)
    affine[:3, 3] = [-(n - 1) / 2 for n in image.shape[1:]]
    subject = torchio.Subject(image=torchio.ScalarImage(tensor=torch.from_numpy(image.copy()), affine=affine))
    made: np.ndarray = getattr(torchio, name)(**arguments)(subject).image.data.numpy()
    return made


@pytest.mark.parametrize("shape", SHAPES)
def test_ghosts_are_those_of_torchio(shape: tuple[int, ...]) -> None:
    image, transform = image_of(shape), Ghosting((1, 10), restore=(0, 1))
    for seed in range(5):
        params = transform.sample(np.random.default_rng(seed), {"image": image.shape})
        found = transform.apply({"image": image}, params)["image"]
        assert np.abs(found - by_torchio(image, "Ghosting", **params["ghosts"][0])).max() < 1e-5


@pytest.mark.parametrize("shape", SHAPES)
def test_a_spike_is_that_of_torchio(shape: tuple[int, ...]) -> None:
    image, transform = image_of(shape), Spikes()
    for seed in range(5):
        params = transform.sample(np.random.default_rng(seed), {"image": image.shape})
        positions, intensity = np.array(params["spikes"][0]["positions"]), params["spikes"][0]["intensity"]
        found = transform.apply({"image": image}, params)["image"]
        theirs = by_torchio(image, "Spike", spikes_positions=positions, intensity=intensity)
        assert np.abs(found - theirs).max() < 1e-5 * np.abs(theirs).max()


@pytest.mark.parametrize("shape", SHAPES)
def test_motion_is_that_of_torchio(shape: tuple[int, ...]) -> None:
    image, transform = image_of(shape), Motion(translation=(-5, 5))
    for seed in range(4):
        params = transform.sample(np.random.default_rng(seed), {"image": image.shape})
        motion = params["motions"][0]
        found = transform.apply({"image": image}, params)["image"]
        theirs = by_torchio(
            image,
            "Motion",
            degrees=np.array([euler_degrees(angles) for angles in motion["rotations"]]),
            translation=np.array(motion["translations"]) * _TO_LPS,
            times=np.array(motion["times"]),
            image_interpolation="linear",
        )
        assert np.abs(found - theirs).max() < 5e-6


#: TorchIO's images are in RAS, SimpleITK's space is LPS.
_TO_LPS = (-1.0, -1.0, 1.0)


def euler_degrees(angles: list[float]) -> list[float]:
    """The angles of SimpleITK's Euler3DTransform, Rz Rx Ry, for a rotation of ours."""
    matrix = np.array(rotation_and_scaling(angles, [1.0] * 3)) * np.outer(_TO_LPS, _TO_LPS)
    about_x = math.asin(matrix[2, 1])
    about_y = math.atan2(-matrix[2, 0], matrix[2, 2])
    about_z = math.atan2(-matrix[0, 1], matrix[1, 1])
    return [math.degrees(angle) for angle in (about_x, about_y, about_z)]


@pytest.mark.parametrize("alpha", [0.1, 0.35, 0.6, 0.95])
@pytest.mark.parametrize("shape", [*SHAPES, (31, 40)])
def test_gibbs_ringing_is_that_of_monai(shape: tuple[int, ...], alpha: float) -> None:
    image = image_of(shape)
    found = GibbsNoise(alpha)(image=image, rng=np.random.default_rng())["image"]
    theirs = np.asarray(monai.GibbsNoise(alpha)(torch.from_numpy(image)))
    assert np.abs(found - theirs).max() < 1e-5
