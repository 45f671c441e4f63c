"""Transforms and options that TorchIO or MONAI have and batchgeneratorsv2 has not: what the
original makes of the same params.
"""

from __future__ import annotations

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

SHAPES = ((2, 19, 14, 17), (1, 16, 20, 18))
FLAT = ((1, 33, 20), (2, 16, 24))


def made(transform: Any, given: np.ndarray, seed: int = 0) -> tuple[dict[str, Any], np.ndarray]:
    params = transform.sample(np.random.default_rng(seed), {"image": given.shape})
    return params, transform.apply({"image": given}, params)["image"]


def as_torchio(given: np.ndarray) -> Any:
    return torch.from_numpy(given.copy() if given.ndim == 4 else given[..., None].copy())


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("order", [1, 3, 5])
def test_a_bias_field_is_torchios(shape: tuple[int, ...], order: int) -> None:
    given = noise(shape)
    params, ours = made(BiasField(order=order), given)
    theirs = torchio.BiasField(coefficients=params["coefficients"][0], order=order)(
        as_torchio(given)
    ).numpy()
    np.testing.assert_allclose(ours, theirs, rtol=6e-7)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("degree", [1, 3, 5])
def test_a_bias_field_is_monais(shape: tuple[int, ...], degree: int) -> None:
    given = noise(shape)
    params, ours = made(BiasField((0, 0.1), degree, "legendre"), given)
    original = monai.RandBiasField(degree)
    original._do_transform, original._coeff = True, params["coefficients"][0]
    np.testing.assert_allclose(
        ours, original(given, randomize=False).numpy(), rtol=2e-6
    )  # their places are float32


@pytest.mark.parametrize("shape", [*SHAPES, *FLAT])
@pytest.mark.parametrize("distance", [1.5, 2.0, 3.0, 4.71875])
def test_thick_slices_are_torchios_but_beyond_the_outermost(
    shape: tuple[int, ...], distance: float
) -> None:
    given = noise(shape)
    for axis, n in enumerate(shape[1:]):
        _, ours = made(Anisotropy((axis,), distance), given)
        theirs = (
            torchio.RandomAnisotropy((axis,), (distance, distance))(as_torchio(given))
            .numpy()
            .reshape(shape)
        )
        count = int(n / distance)
        outside = np.abs(np.arange(n) - (n - 1) / 2) > count * distance / 2 + 1e-6
        inside = np.abs(np.arange(n) - (n - 1) / 2) < count * distance / 2 - 1e-6
        ours, theirs = np.moveaxis(ours, axis + 1, 0), np.moveaxis(theirs, axis + 1, 0)
        np.testing.assert_allclose(ours[inside], theirs[inside], rtol=0, atol=1e-6)
        assert (theirs[outside] == 0).all()
        assert (ours[outside] != 0).all()


SOURCES = {2: (31, 27), 3: (23, 20, 17)}
PATCHES = {2: (18, 20), 3: (12, 14, 10)}


def numbered(values: list[float]) -> Any:
    """A callable that gives these numbers, one after the other."""
    left = iter(values)
    return lambda: next(left)


@pytest.mark.parametrize("dims", [2, 3])
@pytest.mark.parametrize("seed", range(4))
def test_shear_and_translation_are_monais_in_float64(dims: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    pairs = len(list(permutations(range(dims), 2)))
    shears, shifts = rng.uniform(-0.3, 0.3, pairs).tolist(), rng.uniform(-4, 4, dims).tolist()
    angles, scales = rng.uniform(-0.5, 0.5, dims).tolist(), rng.uniform(0.7, 1.4, dims).tolist()
    if dims == 3:
        angles[1] = angles[2] = (
            0.0  # the two multiply rotations about several axes in another order
        )
    drawn = {"rotation": angles, "scaling": scales, "shear": shears, "translation": shifts}
    always = dict.fromkeys(("p_shear", "p_translation", "p_rotation", "p_scaling"), 1)
    callables = {name: numbered(values) for name, values in drawn.items()}
    transform = SpatialTransform(
        PATCHES[dims], 0, False, **always, p_synchronize_scaling_across_axes=0, **callables
    )
    given = rng.normal(size=(1, *SOURCES[dims]))
    params = transform.sample(rng, {"image": given.shape})
    rotate = (angles[0], 0.0, 0.0) if dims == 3 else angles[-1]
    theirs = {
        "rotate_params": rotate,
        "shear_params": shears,
        "translate_params": shifts,
        "scale_params": scales,
    }
    affine = monai.Affine(
        **theirs,
        spatial_size=PATCHES[dims],
        padding_mode="zeros",
        mode="bilinear",
        dtype=torch.float64,
        image_only=True,
    )
    affine.affine_grid.dtype = torch.float64
    expected = np.asarray(affine(torch.from_numpy(given)))
    assert np.abs(image_in_float64(transform, params, given) - expected).max() < 1e-5
    ours = transform.apply({"image": given.astype(np.float32)}, params)["image"]
    assert np.abs(ours - expected).max() < 1e-5
