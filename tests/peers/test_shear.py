"""Shear and translation of `SpatialTransform` are MONAI's, in float64."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest
import torch

from detaug.transforms import SpatialTransform
from tests.support.transforms.spatial_reference import image_in_float64

monai = pytest.importorskip("monai.transforms")

SHAPES = {2: (31, 27), 3: (23, 20, 17)}
PATCHES = {2: (18, 20), 3: (12, 14, 10)}


def numbered(values: list[float]) -> Any:
    """A callable that gives these numbers, one after the other."""
    left = iter(values)
    return lambda: next(left)


@pytest.mark.parametrize("dims", [2, 3])
@pytest.mark.parametrize("seed", range(4))
def test_coordinates_are_monais(dims: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    pairs = len(list(permutations(range(dims), 2)))
    shears, shifts = rng.uniform(-0.3, 0.3, pairs).tolist(), rng.uniform(-4, 4, dims).tolist()
    angles, scales = rng.uniform(-0.5, 0.5, dims).tolist(), rng.uniform(0.7, 1.4, dims).tolist()
    if dims == 3:
        angles[1] = angles[2] = 0.0  # the two multiply rotations about several axes in another order
    transform = SpatialTransform(
        PATCHES[dims],
        0,
        False,
        p_shear=1,
        p_translation=1,
        p_rotation=1,
        rotation=numbered(angles),
        p_scaling=1,
        scaling=numbered(scales),
        p_synchronize_scaling_across_axes=0,
        shear=numbered(shears),
        translation=numbered(shifts),
    )
    image = rng.normal(size=(1, *SHAPES[dims]))
    params = transform.sample(rng, {"image": image.shape})
    rotate = angles[0] if dims == 3 else angles[-1]
    affine = monai.Affine(
        rotate_params=(rotate, 0.0, 0.0) if dims == 3 else rotate,
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
    made = transform.apply({"image": image.astype(np.float32)}, params)["image"]
    assert np.abs(made - expected).max() < 1e-5
