"""Transforms that TorchIO or MONAI have, and batchgeneratorsv2 has not, are the original's.

Both get the same params.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from typing import Any

import numpy as np
import pytest
import torch

from detaug.transforms import Anisotropy, BiasField, SpatialTransform
from tests.support.transforms.generators import noise
from tests.support.transforms.spatial_reference import image_in_float64

monai = pytest.importorskip("monai.transforms")
torchio = pytest.importorskip("torchio")
pytestmark = pytest.mark.filterwarnings("ignore")

#: Shapes (C, D, H, W) and (C, H, W).
SHAPES = ((2, 19, 14, 17), (1, 16, 20, 18))
PLANE_SHAPES = ((1, 33, 20), (2, 16, 24))


def drawn_and_applied(transform: Any, image: np.ndarray) -> tuple[dict[str, Any], np.ndarray]:
    """Return the params that one of detaug's transforms draws, and the image that it makes."""
    params = transform.sample(np.random.default_rng(0), {"image": image.shape})
    result = transform.apply({"image": image}, params)["image"]
    return params, result


def as_torchio(image: np.ndarray) -> torch.Tensor:
    """Return a copy of an image as (C, D, H, W), as TorchIO takes it."""
    tensor = torch.from_numpy(image.copy())
    if image.ndim == 3:
        return tensor[..., None]
    return tensor


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("order", [1, 3, 5])
def test_a_bias_field_is_torchios(shape: tuple[int, ...], order: int) -> None:
    image = noise(shape)
    params, result = drawn_and_applied(BiasField(order=order), image)
    original = torchio.BiasField(coefficients=params["coefficients"][0], order=order)
    expected = original(as_torchio(image)).numpy()
    np.testing.assert_allclose(result, expected, rtol=6e-7)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("degree", [1, 3, 5])
def test_a_bias_field_is_monais(shape: tuple[int, ...], degree: int) -> None:
    image = noise(shape)
    params, result = drawn_and_applied(BiasField((0, 0.1), degree, "legendre"), image)
    original = monai.RandBiasField(degree)
    original._do_transform = True
    original._coeff = params["coefficients"][0]
    expected = original(image, randomize=False).numpy()
    # MONAI computes coordinates in float32.
    np.testing.assert_allclose(result, expected, rtol=2e-6)


@pytest.mark.parametrize("shape", [*SHAPES, *PLANE_SHAPES])
@pytest.mark.parametrize("distance", [1.5, 2.0, 3.0, 4.71875])
def test_thick_slices_are_torchios_but_beyond_the_outermost(
    shape: tuple[int, ...], distance: float
) -> None:
    image = noise(shape)
    for axis, length in enumerate(shape[1:]):
        _, result = drawn_and_applied(Anisotropy((axis,), distance), image)
        original = torchio.RandomAnisotropy((axis,), (distance, distance))
        expected = original(as_torchio(image)).numpy().reshape(shape)
        result = np.moveaxis(result, axis + 1, 0)
        expected = np.moveaxis(expected, axis + 1, 0)

        # Half the thickness of all slices together, and the voxels' distances from the middle.
        half = int(length / distance) * distance / 2
        distances = np.abs(np.arange(length) - (length - 1) / 2)
        inside = distances < half - 1e-6
        outside = distances > half + 1e-6
        np.testing.assert_allclose(result[inside], expected[inside], rtol=0, atol=1e-6)
        assert (expected[outside] == 0).all()
        assert (result[outside] != 0).all()


SOURCES = {2: (31, 27), 3: (23, 20, 17)}
PATCHES = {2: (18, 20), 3: (12, 14, 10)}


def one_after_another(values: list[float]) -> Callable[[], float]:
    """Return a function that returns the next value at each call."""
    remaining = iter(values)

    def next_value() -> float:
        return next(remaining)

    return next_value


@pytest.mark.parametrize("dims", [2, 3])
@pytest.mark.parametrize("seed", range(4))
def test_shear_and_translation_are_monais_in_float64(dims: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    num_shears = len(list(permutations(range(dims), 2)))
    shears = rng.uniform(-0.3, 0.3, num_shears).tolist()
    shifts = rng.uniform(-4, 4, dims).tolist()
    angles = rng.uniform(-0.5, 0.5, dims).tolist()
    scales = rng.uniform(0.7, 1.4, dims).tolist()
    monais_rotation = angles[-1]
    if dims == 3:
        # About one axis only: the two libraries multiply rotations in different orders.
        angles[1] = 0.0
        angles[2] = 0.0
        monais_rotation = tuple(angles)

    transform = SpatialTransform(
        PATCHES[dims],
        0,
        False,
        p_rotation=1,
        p_scaling=1,
        p_shear=1,
        p_translation=1,
        p_synchronize_scaling_across_axes=0,
        rotation=one_after_another(angles),
        scaling=one_after_another(scales),
        shear=one_after_another(shears),
        translation=one_after_another(shifts),
    )
    image = rng.normal(size=(1, *SOURCES[dims]))
    params = transform.sample(rng, {"image": image.shape})

    affine = monai.Affine(
        rotate_params=monais_rotation,
        shear_params=shears,
        translate_params=shifts,
        scale_params=scales,
        spatial_size=PATCHES[dims],
        padding_mode="zeros",
        mode="bilinear",
        dtype=torch.float64,
        image_only=True,
    )
    affine.affine_grid.dtype = torch.float64
    expected = np.asarray(affine(torch.from_numpy(image)))
    assert np.abs(image_in_float64(transform, params, image) - expected).max() < 1e-5
    result = transform.apply({"image": image.astype(np.float32)}, params)["image"]
    assert np.abs(result - expected).max() < 1e-5
