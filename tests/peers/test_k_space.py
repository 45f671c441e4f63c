"""Artefacts of k-space against TorchIO's and MONAI's own classes, at the same params."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from detaug.transforms import Ghosting, GibbsNoise, Motion, Spikes
from detaug.transforms.building.affine import rotation_and_scaling
from tests.support.transforms.generators import noise

monai = pytest.importorskip("monai.transforms", reason="MONAI is not installed (the extra `peers`)")
torchio = pytest.importorskip("torchio", reason="TorchIO is not installed (the extra `peers`)")

SHAPES = ((24, 20, 28), (17, 9, 33))


def by_torchio(image: np.ndarray, name: str, **arguments: Any) -> np.ndarray:
    """By one of its deterministic classes; the middle of the image is where its physical space has its origin."""
    affine = np.eye(4)
    affine[:3, 3] = [-(n - 1) / 2 for n in image.shape[1:]]
    subject = torchio.Subject(image=torchio.ScalarImage(tensor=torch.from_numpy(image.copy()), affine=affine))
    made: np.ndarray = getattr(torchio, name)(**arguments)(subject).image.data.numpy()
    return made


#: TorchIO's images are in RAS, SimpleITK's space is LPS.
_TO_LPS = (-1.0, -1.0, 1.0)


def euler_degrees(angles: list[float]) -> list[float]:
    """The angles of SimpleITK's Euler3DTransform, Rz Rx Ry, for a rotation of ours."""
    matrix = np.array(rotation_and_scaling(angles, [1.0] * 3)) * np.outer(_TO_LPS, _TO_LPS)
    about_x = math.asin(matrix[2, 1])
    about_y = math.atan2(-matrix[2, 0], matrix[2, 2])
    about_z = math.atan2(-matrix[0, 1], matrix[1, 1])
    return [math.degrees(angle) for angle in (about_x, about_y, about_z)]


def as_spike(params: dict[str, Any]) -> dict[str, Any]:
    return {"spikes_positions": np.array(params["positions"]), "intensity": params["intensity"]}


def as_motion(params: dict[str, Any]) -> dict[str, Any]:
    return {
        "degrees": np.array([euler_degrees(angles) for angles in params["rotations"]]),
        "translation": np.array(params["translations"]) * _TO_LPS,
        "times": np.array(params["times"]),
        "image_interpolation": "linear",
    }


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    ("transform", "name", "arguments", "absolute", "relative"),
    [
        (Ghosting((1, 10), restore=(0, 1)), "Ghosting", dict, 1e-5, 0),
        (Spikes(), "Spike", as_spike, 0, 1e-5),
        (Motion(translation=(-5, 5)), "Motion", as_motion, 5e-6, 0),
    ],
)
def test_artefacts_are_those_of_torchio(
    shape: tuple[int, ...], transform: Any, name: str, arguments: Any, absolute: float, relative: float
) -> None:
    image = noise((1, *shape))
    for seed in range(5):
        params = transform.sample(np.random.default_rng(seed), {"image": image.shape})
        _, (drawn,) = params.values()
        theirs = by_torchio(image, name, **arguments(drawn))
        found = transform.apply({"image": image}, params)["image"]
        assert np.abs(found - theirs).max() < absolute + relative * np.abs(theirs).max()


@pytest.mark.parametrize("alpha", [0.1, 0.35, 0.6, 0.95])
@pytest.mark.parametrize("shape", [*SHAPES, (31, 40)])
def test_gibbs_ringing_is_that_of_monai(shape: tuple[int, ...], alpha: float) -> None:
    image = noise((1, *shape))
    found = GibbsNoise(alpha)(image=image, rng=np.random.default_rng())["image"]
    theirs = np.asarray(monai.GibbsNoise(alpha)(torch.from_numpy(image)))
    assert np.abs(found - theirs).max() < 1e-5
