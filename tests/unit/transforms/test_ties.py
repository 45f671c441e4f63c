"""Where a place lies half-way between two voxels: both agree everywhere else, and there the even
one is taken.

nnU-Net reads odd patches for even ones (128 voxels of 205), so an axis that is not turned lies half
a voxel off. In batchgeneratorsv2 the even one is taken as well, of a coordinate in float32, whose
rounding may have moved it.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch

from detaug import SeedTree
from detaug.demo.mri import load_template
from detaug.nnunet import TRAINING_TRANSFORMS
from detaug.transforms import SpatialTransform
from detaug.transforms.building.affine import rotation
from tests.support.transforms.spatial_reference import (
    label_weights_in_float64,
    reference_params,
    sampling_grid,
)

TIE = 1e-9  # voxels, or parts of the whole weight: the reference's own rounding in float64
ALLOWED = 1e-4


def head(shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Real MRI of this shape with labels -1 (outside), 0, 1 and 2; a plane of it where there are
    two axes.
    """
    template = load_template()
    source = (
        template.image,
        np.where(template.image == template.image.min(), -1, template.labels).astype(np.int16),
    )
    if len(shape) == 2:
        source = tuple(np.kron(each[:, :, 75], np.ones((5, 5), each.dtype)) for each in source)
    arrays = []
    for each, outside in zip(source, (0, -1), strict=True):
        wider = [max(0, n - m) for n, m in zip(shape, each.shape, strict=True)]
        padded = np.pad(each, [(w // 2, w - w // 2) for w in wider], constant_values=outside)
        starts = [(m - n) // 2 for m, n in zip(padded.shape, shape, strict=True)]
        arrays.append(
            padded[tuple(slice(s, s + n) for s, n in zip(starts, shape, strict=True))][None]
        )
    return np.ascontiguousarray(arrays[0], np.float32), np.ascontiguousarray(arrays[1])


def places(
    transform: SpatialTransform, params: dict[str, Any], shape: tuple[int, ...]
) -> np.ndarray:
    """Where the patch's voxels lie in the source, in voxels, (*patch, axes) in float64."""
    grid = sampling_grid(transform, params, shape, torch.float64).flip(-1).numpy()
    return ((grid + 1) * np.array(shape) - 1) / 2


def shares_that_differ(
    transform: SpatialTransform, params: dict[str, Any], image: np.ndarray, labels: np.ndarray
) -> dict[str, float]:
    """The share of the patch's voxels that batchgeneratorsv2 makes otherwise, exact ties apart; at
    those, ours is seen to be one of the neighbours.
    """
    spatial = pytest.importorskip("batchgeneratorsv2.transforms.spatial.spatial")
    options = {
        name: value
        for name, value in vars(transform).items()
        if name in spatial.SpatialTransform.__init__.__code__.co_varnames
    }
    theirs = spatial.SpatialTransform(**options)
    given = reference_params(transform, params, image.shape[1:])
    result = transform.apply({"image": image, "segmentation": labels}, params)
    found = {}
    for key, array, mode, reference in (
        (
            "image",
            image,
            transform.mode_image,
            theirs._apply_to_image(torch.from_numpy(image), **given),
        ),
        (
            "segmentation",
            labels,
            transform.mode_seg,
            theirs._apply_to_segmentation(torch.from_numpy(labels), **given),
        ),
    ):
        differs = (result[key] != reference.numpy())[0]
        if mode == "nearest":
            tied = assert_a_neighbour(
                result[key][0], array[0], places(transform, params, image.shape[1:]), key
            )
        elif key == "segmentation":
            tied = assert_a_largest_weight(result[key][0], array[0], transform, params)
        else:
            continue
        found[key] = float((differs & ~tied).mean())
    return found


def assert_a_neighbour(
    result: np.ndarray, source: np.ndarray, where: np.ndarray, key: str
) -> np.ndarray:
    """Every voxel shows one of those that are nearest; which voxels have more than one of them."""
    low, high = np.floor(where + 0.5 - TIE).astype(int), np.floor(where + 0.5 + TIE).astype(int)
    outside = 0 if key == "image" else -1
    wider = np.pad(source, 1, constant_values=outside)
    right = np.zeros(result.shape, bool)
    for ends in product((low, high), repeat=source.ndim):
        index = [
            np.clip(end[..., axis] + 1, 0, source.shape[axis] + 1) for axis, end in enumerate(ends)
        ]
        right |= result == wider[tuple(index)]
    assert right.all()
    return (low != high).any(axis=-1)


def assert_a_largest_weight(
    result: np.ndarray, source: np.ndarray, transform: SpatialTransform, params: dict[str, Any]
) -> np.ndarray:
    """Every voxel has one of the labels with the largest weight; which voxels have more than one of
    them.
    """
    values, weights = label_weights_in_float64(transform, params, source)
    ordered = np.sort(weights, axis=0)
    own = np.take_along_axis(weights, np.searchsorted(values, result)[None], axis=0)[0]
    assert (ordered[-1] - own < 1e-8).all()
    return ordered[-1] - ordered[-2] < TIE


@pytest.mark.parametrize("name", ["nnUNetTrainerDA5", "nnUNetTrainerDA5ord0"])
@pytest.mark.parametrize(
    ("patch", "enlarged"), [((40, 36, 32), (79, 71, 63)), ((128, 96), (183, 137))]
)
def test_labels_are_those_of_batchgeneratorsv2_but_for_exact_ties(
    name: str, patch: tuple[int, ...], enlarged: tuple[int, ...]
) -> None:
    angle = np.pi if len(patch) == 2 else np.pi / 6
    pipeline = TRAINING_TRANSFORMS[name](patch, (-angle, angle), None, None, False)
    transform = next(each for each in pipeline.transforms if isinstance(each, SpatialTransform))
    transform.p_rotation = transform.p_scaling = 0.7  # few samples are only cropped
    image, labels = head(enlarged)
    shapes = {"image": image.shape, "segmentation": labels.shape}
    for seed in range(8):
        params = transform.sample(SeedTree(20261122).generator(0, seed), shapes)
        if params["affine"] is not None:
            found = shares_that_differ(transform, params, image, labels)
            assert all(share <= ALLOWED for share in found.values()), (seed, params, found)


@pytest.mark.parametrize(("mode", "allowed"), [("nearest", 1e-4), ("bilinear", 3e-4)])
def test_labels_without_any_structure_differ_at_few_voxels_more(mode: str, allowed: float) -> None:
    # independent draws: every voxel's neighbours have other labels, and weights that float16 rounds
    # to ties are common
    rng = np.random.default_rng(0)
    image = rng.normal(size=(1, 91, 83, 77)).astype(np.float32)
    labels = rng.integers(0, 4, image.shape).astype(np.int16)
    options: dict[str, Any] = {
        "mode_image": "nearest",
        "mode_seg": mode,
        "border_mode_seg": "constant",
    }
    transform = SpatialTransform(
        (56, 52, 48), 0, False, p_rotation=1, rotation=(-0.5, 0.5), padding_value_seg=-1, **options
    )
    for seed in range(3):
        params = transform.sample(
            SeedTree(5).generator(0, seed), {"image": image.shape, "segmentation": labels.shape}
        )
        found = shares_that_differ(transform, params, image, labels)
        assert found["image"] <= ALLOWED
        assert found["segmentation"] <= allowed


EVEN = [0, 2, 2, 4, 4, 6, 6, 8, 8, 10, 10, 12]  # of 0.5, 1.5, ... 11.5


@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("angle", [0.0, 0.4])
def test_half_way_between_two_voxels_the_one_of_even_number_is_taken(
    mode: str, axis: int, angle: float
) -> None:
    space, patch = [9, 9, 9], [3, 3, 3]
    space[axis], patch[axis] = 13, 12
    steps = np.moveaxis(np.broadcast_to(np.arange(13, dtype=np.int16), (9, 9, 13)), 2, axis)
    labels = np.ascontiguousarray(steps)[None]
    transform = SpatialTransform(patch, 0, False, mode_image="nearest", mode_seg=mode)
    angles = [
        angle if other == axis else 0.0 for other in range(3)
    ]  # about an axis, which stays as it is
    params = {
        "affine": rotation(angles),
        "elastic": None,
        "center_location_in_pixels": [n / 2 for n in space],
    }
    result = transform.apply({"image": labels.astype(np.float32), "segmentation": labels}, params)
    for key in ("image", "segmentation"):
        line = np.moveaxis(result[key][0], axis, 2)
        assert line.min(axis=(0, 1)).tolist() == line.max(axis=(0, 1)).tolist() == EVEN, key
