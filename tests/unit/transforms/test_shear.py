"""Shear and translation of `SpatialTransform`; nothing is drawn where they are off. (MONAI's: `tests/peers/test_shear.py`.)"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from detaug import SeedTree, fingerprint
from detaug.transforms import SpatialTransform

SHAPES = {2: (31, 27), 3: (23, 20, 17)}
PATCHES = {2: (18, 20), 3: (12, 14, 10)}


def numbered(values: list[float]) -> Any:
    """A callable that gives these numbers, one after the other."""
    left = iter(values)
    return lambda: next(left)


def sheared_and_shifted(dims: int, **options: Any) -> SpatialTransform:
    always: dict[str, Any] = {"p_shear": 1, "shear": (-0.3, 0.3), "p_translation": 1, "translation": (-4, 4)}
    return SpatialTransform(PATCHES[dims], 0, False, **{**always, **options})


@pytest.mark.parametrize("dims", [2, 3])
def test_at_probability_0_nothing_is_drawn_and_no_byte_changes(dims: int) -> None:
    given = {"image": np.random.default_rng(0).normal(size=(1, *SHAPES[dims])).astype(np.float32)}
    always: dict[str, Any] = {"p_rotation": 1, "rotation": (-1, 1), "p_scaling": 1, "random_crop": True}
    plain = SpatialTransform(PATCHES[dims], 3, **always)
    off = SpatialTransform(PATCHES[dims], 3, **always, shear=lambda: 1 / 0, translation=lambda: 1 / 0)
    first, second = SeedTree(1).generator(), SeedTree(1).generator()
    assert fingerprint(plain(**given, rng=first)) == fingerprint(off(**given, rng=second))
    assert first.bit_generator.state == second.bit_generator.state


def test_a_whole_voxel_translation_is_a_crop() -> None:
    image = np.random.default_rng(0).normal(size=(1, 20, 22)).astype(np.float32)
    transform = SpatialTransform((8, 8), 0, False, p_translation=1, translation=numbered([3, -2]))
    assert np.array_equal(transform(image=image, rng=SeedTree(1).generator())["image"], image[:, 9:17, 5:13])


@pytest.mark.parametrize("dims", [2, 3])
def test_keypoints_and_boxes_move_with_the_voxels(dims: int) -> None:
    point = np.array([[n // 2 + 1 for n in SHAPES[dims]]], np.float64)
    grids = np.meshgrid(*[np.arange(n) for n in SHAPES[dims]], indexing="ij")
    spot = np.exp(-sum((g - p) ** 2 for g, p in zip(grids, point[0], strict=True)) / 4)[None].astype(np.float32)
    boxes = np.concatenate((point - 1, point + 1), axis=1)
    for seed in range(6):
        transform = sheared_and_shifted(dims, translation=(-2, 2))
        made = transform(image=spot, keypoints=point, bbox=boxes, rng=SeedTree(seed).generator())
        weights = made["image"][0].astype(np.float64)
        places = np.meshgrid(*[np.arange(n) for n in weights.shape], indexing="ij")
        middle = [float((weights * g).sum() / weights.sum()) for g in places]
        assert np.abs(made["keypoints"][0] - middle).max() < 0.3
        assert (made["bbox"][0][:dims] < made["keypoints"][0]).all()
        assert (made["keypoints"][0] < made["bbox"][0][dims:]).all()
