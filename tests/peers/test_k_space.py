"""Artefacts of k-space against TorchIO's and MONAI's own classes, at the same params."""

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


def by_torchio(
    volume: np.ndarray, name: str, shape: tuple[int, ...] | None = None, **arguments: Any
) -> np.ndarray:
    """Apply one of its deterministic classes.

    Its physical space has its origin in the middle of the volume, or of its first voxels of a
    shape.
    """
    affine = np.eye(4)
    affine[:3, 3] = [-(n - 1) / 2 for n in shape or volume.shape]
    subject = torchio.Subject(
        image=torchio.ScalarImage(tensor=torch.from_numpy(volume[None].copy()), affine=affine)
    )
    made: np.ndarray = getattr(torchio, name)(**arguments)(subject).image.data.numpy()[0]
    return made


def ghosts(volume: np.ndarray, drawn: dict[str, Any], flat: int) -> np.ndarray:
    return by_torchio(volume, "Ghosting", **{**drawn, "axis": drawn["axis"] + flat})


def spikes(volume: np.ndarray, drawn: dict[str, Any], flat: int) -> np.ndarray:
    """One at a time: theirs measures each by the image with those before it."""
    result = volume.astype(np.float64)
    for position in drawn["positions"]:
        at = np.array([[0.0] * flat + position])
        result += (
            by_torchio(volume, "Spike", spikes_positions=at, intensity=drawn["intensity"]) - volume
        )
    return result


#: TorchIO's images are in RAS, SimpleITK's space is LPS.
_TO_LPS = (-1.0, -1.0, 1.0)


def euler_degrees(matrix: np.ndarray) -> list[float]:
    """The angles of SimpleITK's Euler3DTransform, Rz Rx Ry."""
    matrix = matrix * np.outer(_TO_LPS, _TO_LPS)
    about_x = math.asin(matrix[2, 1])
    about_y = math.atan2(-matrix[2, 0], matrix[2, 2])
    about_z = math.atan2(-matrix[0, 1], matrix[1, 1])
    return [math.degrees(angle) for angle in (about_x, about_y, about_z)]


def motion(volume: np.ndarray, drawn: dict[str, Any], flat: int) -> np.ndarray:
    """Return the moved volume; theirs fills k-space along the last axis, and extends nothing."""
    axis = drawn["axis"] + flat
    order = [each for each in range(3) if each != axis] + [axis]
    degrees = []
    for angles in drawn["rotations"]:
        matrix = np.eye(3)
        matrix[flat:, flat:] = rotation(angles)
        degrees.append(euler_degrees(matrix[np.ix_(order, order)]))
    translations = np.array([[0.0] * flat + each for each in drawn["translations"]])
    given = volume.transpose(order)
    n = given.shape[2]
    moved = by_torchio(
        np.pad(given, [(0, 0), (0, 0), (0, extended_length(n) - n)]),
        "Motion",
        given.shape,
        degrees=np.array(degrees),
        translation=translations[:, order] * _TO_LPS,
        times=np.array(drawn["times"]),
        image_interpolation="linear",
    )
    return moved[..., :n].transpose(np.argsort(order))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    ("transform", "theirs", "absolute", "relative"),
    [
        (Ghosting((2, 10), synchronize_channels=False), ghosts, 1e-5, 0),
        (
            Ghosting((1, 10), intensity=(0, 2), restore=(0, 1), synchronize_channels=False),
            ghosts,
            1e-5,
            0,
        ),
        (Spikes((1, 4), (-3, 3), synchronize_channels=False), spikes, 0, 1e-5),
    ],
)
def test_artefacts_are_those_of_torchio(
    shape: tuple[int, ...],
    transform: Any,
    theirs: Callable[..., np.ndarray],
    absolute: float,
    relative: float,
) -> None:
    flat = 3 - len(shape)
    for seed in range(5):
        image = noise((2, *shape), seed)
        params = transform.sample(np.random.default_rng(seed), {"image": image.shape})
        found = transform.apply({"image": image}, params)["image"]
        for c, drawn in zip(*params.values(), strict=True):
            expected = theirs(image[c].reshape((1,) * flat + shape), drawn, flat).reshape(shape)
            assert np.abs(found[c] - expected).max() < absolute + relative * np.abs(expected).max()


@pytest.mark.parametrize("shape", [(48, 45, 56), (48, 56)])
@pytest.mark.parametrize(
    "transform", [Motion((-1, 1), (-3, 3)), Motion((-0.2, 0.2), (-3, 3), 5, axes=(0, 1))]
)
def test_where_nothing_comes_from_outside_motion_is_that_of_torchio(
    shape: tuple[int, ...], transform: Motion
) -> None:
    flat = 3 - len(shape)
    image = np.zeros((1, *shape), np.float32)
    # Small, so that it is not within what the ends of the axis are mirrored of.
    object_within = (0, *(slice(n // 2 - 3, n // 2 + 3) for n in shape))
    image[object_within] = np.abs(noise((6,) * len(shape)))
    for seed in range(5):
        params = transform.sample(np.random.default_rng(seed), {"image": image.shape})
        moved = transform.apply({"image": image}, params)["image"][0]
        lifted = image[0].reshape((1,) * flat + shape)
        expected = motion(lifted, params["motions"][0], flat).reshape(shape)
        assert np.abs(moved - expected).max() < 5e-6


def test_the_largest_coefficient_is_found_wherever_it_is() -> None:
    """A wave of a single frequency, and a constant: TorchIO's default of a spike is 1 to 3 times
    the largest one.
    """
    i, j, k = np.indices((12, 10, 16))
    for wave in (
        np.ones((12, 10, 16)),
        np.cos(2 * np.pi * (3 * i / 12 + j / 10 - 7 * k / 16)),
        (-1.0) ** (i + j + k),
    ):
        image, spike = wave.astype(np.float32), {"positions": [[0.1, 0.2, 0.3]], "intensity": 2.0}
        found = Spikes().apply(
            {"image": image[None]}, {"apply_to_channel": [0], "spikes": [spike]}
        )["image"][0]
        np.testing.assert_allclose(found, spikes(image, spike, 0), atol=3e-6)


@pytest.mark.parametrize("alpha", [0.1, 0.35, 0.6, 0.95])
@pytest.mark.parametrize("shape", [(32, 40, 24), (40, 40, 40), (48, 64), (72, 8)])
def test_gibbs_ringing_is_that_of_monai_of_an_extended_image(
    shape: tuple[int, ...], alpha: float
) -> None:
    """Each axis is an eighth longer, so that theirs has the same ball."""
    image = noise((1, *shape))
    whole = image[0]
    for axis in range(len(shape)):
        whole = extended(whole, axis)
    assert whole.shape == tuple(n * 9 // 8 for n in shape)
    theirs = np.asarray(monai.GibbsNoise(alpha)(torch.from_numpy(whole[None])))[0]
    params = {"apply_to_channel": [0], "alphas": [alpha]}
    ours = GibbsNoise().apply({"image": image}, params)["image"][0]
    assert np.abs(ours - theirs[tuple(map(slice, shape))]).max() < 1e-5
