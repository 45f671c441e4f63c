"""SpatialTransform against batchgeneratorsv2 and against float64, for the same params."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy.ndimage import gaussian_filter

from detaug import SeedTree, fingerprint
from detaug.transforms import SpatialTransform
from tests.support.transforms.spatial_reference import (
    image_in_float64,
    label_weights_in_float64,
    reference_params,
    sampling_grid,
)

BORDERS = ("zeros", "constant")


def random_labels(rng: np.random.Generator, shape: tuple[int, ...], count: int) -> np.ndarray:
    field = gaussian_filter(rng.normal(size=shape), 1.5)
    return np.digitize(field, np.quantile(field, np.linspace(0, 1, count + 1)[1:-1])).astype(
        np.int16
    )


def random_case(
    seed: int, **fixed: object
) -> tuple[SpatialTransform, dict, dict, np.ndarray, np.ndarray]:
    """A transform with random arguments (and those arguments), params, an image and labels of
    random shapes.
    """
    rng = np.random.default_rng(seed)
    dims = int(rng.integers(2, 4))
    shape = tuple(int(n) for n in rng.integers(4, 34, dims))
    patch = tuple(int(n) for n in rng.integers(1, 34, dims))
    if seed % 5 == 0:
        shape = (1, *shape[1:])
    modes = ["bilinear", "nearest"]
    arguments = {
        "patch_center_dist_from_border": [n / 2 for n in patch] if seed % 2 else 3,
        "random_crop": bool(rng.integers(2)),
        "p_rotation": 1,
        "rotation": (-3.0, 3.0),
        "p_rot_per_axis": float(rng.choice([0.5, 1.0])),
        "p_scaling": float(rng.integers(2)),
        "scaling": (0.5, 1.6),
        "p_elastic_deform": float(rng.choice([0, 0, 1])),
        "elastic_deform_scale": (0.05, 0.3),
        "elastic_deform_magnitude": (0, 3.0),
        "padding_mode_image": str(rng.choice(BORDERS)),
        "border_mode_seg": str(rng.choice(BORDERS)),
        "padding_value_seg": -1,
        "padding_value_image": 2.5,
        "align_corners": bool(rng.integers(2)),
        "mode_image": str(rng.choice([*modes, "bicubic"] if dims == 2 else modes)),
        "mode_seg": str(rng.choice(modes)),
        "center_deformation": bool(rng.integers(2)),
        **fixed,
    }
    transform = SpatialTransform(patch, **arguments)
    image = rng.normal(size=(int(rng.integers(1, 4)), *shape)).astype(np.float32)
    labels = np.stack(
        [random_labels(rng, shape, int(rng.integers(1, 6))) for _ in range(int(rng.integers(1, 3)))]
    )
    params = transform.sample(rng, {"image": image.shape, "segmentation": labels.shape})
    return transform, {"patch_size": patch, **arguments}, params, image, labels


def assert_half_way(
    where: np.ndarray, transform: SpatialTransform, params: dict, shape: tuple[int, ...]
) -> None:
    """The voxels are taken from places half-way between two of the source, which a rounding
    decides.
    """
    grid = sampling_grid(transform, params, shape, torch.float64).flip(-1).numpy()
    size = np.array(shape)
    place = (grid + 1) / 2 * (size - 1) if transform.align_corners else ((grid + 1) * size - 1) / 2
    assert (np.abs(place - np.floor(place) - 0.5).min(axis=-1)[where] < 1e-4).all()


@pytest.mark.parametrize("seed", range(60))
def test_it_agrees_with_batchgeneratorsv2(seed: int) -> None:
    spatial = pytest.importorskip("batchgeneratorsv2.transforms.spatial.spatial")
    transform, arguments, params, image, labels = random_case(seed)
    theirs = spatial.SpatialTransform(**arguments)
    given = reference_params(transform, params, image.shape[1:])
    expected = theirs._apply_to_image(torch.from_numpy(image), **given).numpy()
    expected_labels = theirs._apply_to_segmentation(torch.from_numpy(labels), **given).numpy()

    result = transform.apply({"image": image, "segmentation": labels}, params)

    difference = np.abs(result["image"] - expected)
    if transform.mode_image == "nearest":
        assert_half_way((difference > 1e-6).any(axis=0), transform, params, image.shape[1:])
    else:
        assert difference.max() < 5e-4 * image.std()
    differs = result["segmentation"] != expected_labels
    if transform.mode_seg == "nearest":
        assert_half_way(differs.any(axis=0), transform, params, image.shape[1:])
    else:
        # they round a label's weight to float16, 2000 steps: what they decide otherwise is a tie to
        # them
        for channel in range(len(labels)):
            _, weights = label_weights_in_float64(transform, params, labels[channel])
            if len(weights) > 1:
                best, second = np.sort(weights, axis=0)[::-1][:2]
                assert ((best - second)[differs[channel]] < 2e-3).all()


@pytest.mark.parametrize("seed", range(40))
def test_it_is_nowhere_less_accurate_than_float32_grids_are(seed: int) -> None:
    mode = {"mode_image": "bilinear"} if seed % 3 else {}
    transform, _, params, image, _ = random_case(1000 + seed, **mode)
    if transform.mode_image == "nearest":
        return
    result = transform.apply({"image": image}, params)["image"]
    assert (
        np.abs(result - image_in_float64(transform, params, image)).max()
        < 5e-6 * image.std() + 1e-6
    )


@pytest.mark.parametrize("seed", range(40))
def test_labels_are_the_argmax_in_float64(seed: int) -> None:
    transform, _, params, _, labels = random_case(2000 + seed, mode_seg="bilinear")
    result = transform.apply({"segmentation": labels}, params)["segmentation"]
    assert result.dtype == labels.dtype
    for channel in range(len(labels)):
        values, weights = label_weights_in_float64(transform, params, labels[channel])
        own = np.take_along_axis(weights, np.searchsorted(values, result[channel])[None], axis=0)[0]
        assert (weights.max(axis=0) - own).max() < 1e-8, "a label with less weight than another one"


def test_of_labels_with_equal_weights_the_nearest_voxels_wins_or_the_lowest() -> None:
    transform = SpatialTransform((1, 2), 0, False)
    # Half-way between voxels 0 and 1, of which 0 is the even one, and between 2 and 3.
    params = {
        "affine": [[1.0, 0.0], [0.0, 2.0]],
        "elastic": None,
        "center_location_in_pixels": [0.5, 2.0],
    }
    labels = np.array([[[4, 1, 1, 4]]], np.int16)
    assert transform.apply({"segmentation": labels}, params)["segmentation"].tolist() == [[[4, 1]]]
    # Between eight voxels: two labels have three of them each, the nearest one's label has one.
    labels = np.array([9, 4, 4, 4, 2, 2, 2, 7], np.int16).reshape(1, 2, 2, 2)
    params = {"affine": np.eye(3), "elastic": None, "center_location_in_pixels": [1, 1, 1]}
    transform = SpatialTransform((1, 1, 1), 0, False)
    assert transform.apply({"segmentation": labels}, params)["segmentation"].item() == 2


def test_tricubic_is_bicubic_in_each_plane_of_a_volume_of_equal_planes() -> None:
    image = np.random.default_rng(0).normal(size=(1, 15, 16)).astype(np.float32)
    volume = np.repeat(image[:, None], 12, axis=1)
    options = {
        "p_rotation": 1,
        "rotation": lambda dim: 0.3 if dim in (0, None) else 0.0,
        "mode_image": "bicubic",
    }
    in_3d = SpatialTransform((5, 6, 7), 0, False, **options)(
        image=volume, rng=np.random.default_rng(0)
    )["image"]
    options["rotation"] = 0.3
    in_2d = SpatialTransform((6, 7), 0, False, **options)(
        image=image, rng=np.random.default_rng(0)
    )["image"]
    assert np.abs(in_3d - in_2d[:, None]).max() < 1e-6


@pytest.mark.parametrize(
    "dtype", [np.uint8, np.int8, np.int16, np.int32, np.int64, np.bool_, np.float32]
)
def test_labels_keep_their_dtype_and_values(dtype: type) -> None:
    rng = np.random.default_rng(3)
    labels = random_labels(rng, (20, 21, 22), 2)[None].astype(dtype)
    transform = SpatialTransform((9, 10, 11), 0, False, p_rotation=1, rotation=(0.3, 0.3))
    result = transform(segmentation=labels, rng=rng)["segmentation"]
    assert result.dtype == dtype
    assert set(np.unique(result)) <= set(np.unique(labels))


def test_an_identity_map_is_a_crop() -> None:
    image = np.random.default_rng(0).normal(size=(1, 10, 12)).astype(np.float32)
    transform = SpatialTransform((6, 6), 0, False, p_rotation=1, rotation=0)
    assert np.array_equal(
        transform(image=image, rng=np.random.default_rng(0))["image"], image[:, 2:8, 3:9]
    )
    cropped = SpatialTransform((6, 6), 0, False)(image=image, rng=np.random.default_rng(0))["image"]
    assert np.array_equal(cropped, image[:, 2:8, 3:9])
    assert cropped.base is image
    assert (
        SpatialTransform((10, 12), 0, False)(image=image, rng=np.random.default_rng(0))["image"]
        is image
    )


def test_callables_get_what_batchgeneratorsv2_gives_them() -> None:
    seen: list[object] = []

    def rotation(image: np.ndarray, dim: int, rng: np.random.Generator) -> float:
        seen.append((image.shape, dim))
        return float(rng.random())

    def magnitude(dim: int, patch_size: tuple[int, ...], deformation_scale: float) -> float:
        seen.append((dim, patch_size, deformation_scale))
        return 1.0

    transform = SpatialTransform(
        (6, 7), 0, False, 1, 0.25, magnitude, p_rotation=1, rotation=rotation
    )  # fmt: skip
    image = np.zeros((1, 9, 9), np.float32)
    first = transform(image=image, rng=np.random.default_rng(0))
    assert ((1, 9, 9), 0) in seen
    assert (1, (6, 7), 0.25) in seen
    assert np.array_equal(
        first["image"], transform(image=image, rng=np.random.default_rng(0))["image"]
    )


def test_nan_and_infinity_stay_where_they_are() -> None:
    image = np.zeros((1, 20, 20), np.float32)
    image[0, 10, 10], image[0, 3, 3] = np.nan, np.inf
    transform = SpatialTransform((20, 20), 0, False, p_rotation=1, rotation=(0.3, 0.3))
    result = transform(image=image, rng=np.random.default_rng(0))["image"]
    assert 0 < (~np.isfinite(result)).sum() <= 8


def test_of_shears_and_shifts_at_probability_0_nothing_is_drawn_and_no_byte_changes() -> None:
    given = {"image": np.random.default_rng(0).normal(size=(1, 23, 20, 17)).astype(np.float32)}
    always: dict[str, Any] = {
        "p_rotation": 1,
        "rotation": (-1, 1),
        "p_scaling": 1,
        "random_crop": True,
    }
    plain = SpatialTransform((12, 14, 10), 3, **always)
    off = SpatialTransform(
        (12, 14, 10), 3, **always, shear=lambda: 1 / 0, translation=lambda: 1 / 0
    )
    first, second = SeedTree(1).generator(), SeedTree(1).generator()
    assert fingerprint(plain(**given, rng=first)) == fingerprint(off(**given, rng=second))
    assert first.bit_generator.state == second.bit_generator.state


@pytest.mark.parametrize("seed", range(60))
def test_a_patch_that_is_only_scaled_has_the_bytes_of_a_turned_one(seed: int) -> None:
    rng = np.random.default_rng(seed)
    dims = 2 + seed % 2
    shape = rng.integers(2, 40, dims)
    image = rng.normal(size=(2, *shape)).astype(np.float32)
    image.reshape(-1)[rng.integers(0, image.size, 4)] = [np.nan, np.inf, -np.inf, -0.0]
    factors = rng.uniform(-1.5, 1.5, dims) if seed % 3 else rng.choice([0.5, 1.0, 1.5], dims)
    patch = [max(1, int(n)) for n in shape * rng.uniform(0.2, 0.8)]
    transform = SpatialTransform(
        patch, 0, False, padding_mode_image=BORDERS[seed % 2], align_corners=bool(rng.integers(2))
    )  # fmt: skip
    scaled = np.diag(factors)
    params = {
        "affine": scaled.tolist(),
        "elastic": None,
        "center_location_in_pixels": (shape / 2).tolist(),
    }
    result = transform.apply({"image": image}, params)["image"]
    # too small an angle to move a voxel, yet an angle
    scaled[0, 1] = 5e-324
    turned = transform.apply({"image": image}, {**params, "affine": scaled.tolist()})["image"]
    assert result.tobytes() == turned.tobytes()
