"""SpatialTransform against batchgeneratorsv2 and against float64, for the same params."""

from __future__ import annotations

from typing import Any, NamedTuple

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
Shape = tuple[int, ...]


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def random_labels(random: np.random.Generator, shape: Shape, count: int) -> np.ndarray:
    """Return smooth areas of the labels 0 ... count - 1, each with the same number of voxels."""
    field = gaussian_filter(random.normal(size=shape), 1.5)
    shares = np.linspace(0, 1, count + 1)
    limits = np.quantile(field, shares[1:-1])
    return np.digitize(field, limits).astype(np.int16)


class Case(NamedTuple):
    """A transform with random arguments, and params, an image and labels of random shapes."""

    transform: SpatialTransform
    arguments: dict[str, Any]
    params: dict[str, Any]
    image: np.ndarray
    labels: np.ndarray


def random_arguments(random: np.random.Generator, seed: int, patch: Shape) -> dict[str, Any]:
    """Return random arguments of a SpatialTransform, except its patch size."""
    modes = ["bilinear", "nearest"]
    image_modes = list(modes)
    if len(patch) == 2:
        image_modes.append("bicubic")
    border_distance: Any = 3
    if seed % 2:
        border_distance = [n / 2 for n in patch]
    return {
        "patch_center_dist_from_border": border_distance,
        "random_crop": bool(random.integers(2)),
        "p_rotation": 1,
        "rotation": (-3.0, 3.0),
        "p_rot_per_axis": float(random.choice([0.5, 1.0])),
        "p_scaling": float(random.integers(2)),
        "scaling": (0.5, 1.6),
        "p_elastic_deform": float(random.choice([0, 0, 1])),
        "elastic_deform_scale": (0.05, 0.3),
        "elastic_deform_magnitude": (0, 3.0),
        "padding_mode_image": str(random.choice(BORDERS)),
        "border_mode_seg": str(random.choice(BORDERS)),
        "padding_value_seg": -1,
        "padding_value_image": 2.5,
        "align_corners": bool(random.integers(2)),
        "mode_image": str(random.choice(image_modes)),
        "mode_seg": str(random.choice(modes)),
        "center_deformation": bool(random.integers(2)),
    }


def random_case(seed: int, **fixed: object) -> Case:
    """Return a random case, with some arguments of its transform fixed."""
    random = rng(seed)
    dims = int(random.integers(2, 4))
    shape = tuple(int(n) for n in random.integers(4, 34, dims))
    patch = tuple(int(n) for n in random.integers(1, 34, dims))
    if seed % 5 == 0:
        shape = (1, *shape[1:])
    arguments = {"patch_size": patch, **random_arguments(random, seed, patch), **fixed}
    transform = SpatialTransform(**arguments)
    num_channels = int(random.integers(1, 4))
    image = random.normal(size=(num_channels, *shape)).astype(np.float32)
    channels = []
    for _ in range(int(random.integers(1, 3))):
        num_labels = int(random.integers(1, 6))
        channels.append(random_labels(random, shape, num_labels))
    labels = np.stack(channels)
    shapes = {"image": image.shape, "segmentation": labels.shape}
    return Case(transform, arguments, transform.sample(random, shapes), image, labels)


def assert_half_way(differs: np.ndarray, case: Case) -> None:
    """Assert that voxels that differ lie half-way between two voxels of the source.

    A rounding decides which of the two is the nearest one.
    """
    shape = case.image.shape[1:]
    grid = sampling_grid(case.transform, case.params, shape, torch.float64).flip(-1).numpy()
    size = np.array(shape)
    if case.transform.align_corners:
        coordinates = (grid + 1) / 2 * (size - 1)
    else:
        coordinates = ((grid + 1) * size - 1) / 2
    distance_from_half = np.abs(coordinates - np.floor(coordinates) - 0.5)
    assert (distance_from_half.min(axis=-1)[differs] < 1e-4).all()


def assert_near_tie(differs: np.ndarray, case: Case, channel: int) -> None:
    """Assert that where the labels differ, two of them have nearly the same weight.

    batchgeneratorsv2 rounds weights to float16, about 2,000 steps, and so may decide otherwise.
    """
    _, weights = label_weights_in_float64(case.transform, case.params, case.labels[channel])
    if len(weights) == 1:
        return
    second, best = np.sort(weights, axis=0)[-2:]
    assert ((best - second)[differs] < 2e-3).all()


@pytest.mark.parametrize("seed", range(60))
def test_it_agrees_with_batchgeneratorsv2(seed: int) -> None:
    spatial = pytest.importorskip("batchgeneratorsv2.transforms.spatial.spatial")
    case = random_case(seed)
    original = spatial.SpatialTransform(**case.arguments)
    params = reference_params(case.transform, case.params, case.image.shape[1:])
    expected = original._apply_to_image(torch.from_numpy(case.image), **params)
    expected_labels = original._apply_to_segmentation(torch.from_numpy(case.labels), **params)

    sample = {"image": case.image, "segmentation": case.labels}
    result = case.transform.apply(sample, case.params)

    difference = np.abs(result["image"] - expected.numpy())
    if case.transform.mode_image == "nearest":
        assert_half_way((difference > 1e-6).any(axis=0), case)
    else:
        assert difference.max() < 5e-4 * case.image.std()
    differs = result["segmentation"] != expected_labels.numpy()
    if case.transform.mode_seg == "nearest":
        assert_half_way(differs.any(axis=0), case)
        return
    for channel in range(len(case.labels)):
        assert_near_tie(differs[channel], case, channel)


@pytest.mark.parametrize("seed", range(40))
def test_it_is_nowhere_less_accurate_than_float32_grids_are(seed: int) -> None:
    fixed: dict[str, Any] = {}
    if seed % 3:
        fixed["mode_image"] = "bilinear"
    case = random_case(1000 + seed, **fixed)
    if case.transform.mode_image == "nearest":
        return
    result = case.transform.apply({"image": case.image}, case.params)["image"]
    exact = image_in_float64(case.transform, case.params, case.image)
    assert np.abs(result - exact).max() < 5e-6 * case.image.std() + 1e-6


@pytest.mark.parametrize("seed", range(40))
def test_labels_are_the_argmax_in_float64(seed: int) -> None:
    case = random_case(2000 + seed, mode_seg="bilinear")
    result = case.transform.apply({"segmentation": case.labels}, case.params)["segmentation"]
    assert result.dtype == case.labels.dtype
    for channel, chosen in zip(case.labels, result, strict=True):
        values, weights = label_weights_in_float64(case.transform, case.params, channel)
        indices = np.searchsorted(values, chosen)[None]
        (own,) = np.take_along_axis(weights, indices, axis=0)
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


def about_the_first_axis(dim: int | None) -> float:
    return 0.0 if dim else 0.3


def test_tricubic_is_bicubic_in_each_plane_of_a_volume_of_equal_planes() -> None:
    image = rng().normal(size=(1, 15, 16)).astype(np.float32)
    volume = np.repeat(image[:, None], 12, axis=1)
    options: dict[str, Any] = {"p_rotation": 1, "mode_image": "bicubic"}
    in_3d = SpatialTransform((5, 6, 7), 0, False, **options, rotation=about_the_first_axis)
    in_2d = SpatialTransform((6, 7), 0, False, **options, rotation=0.3)
    planes = in_3d(image=volume, rng=rng())["image"]
    plane = in_2d(image=image, rng=rng())["image"]
    assert np.abs(planes - plane[:, None]).max() < 1e-6


@pytest.mark.parametrize(
    "dtype", [np.uint8, np.int8, np.int16, np.int32, np.int64, np.bool_, np.float32]
)
def test_labels_keep_their_dtype_and_values(dtype: type) -> None:
    labels = random_labels(rng(3), (20, 21, 22), 2)[None].astype(dtype)
    transform = SpatialTransform((9, 10, 11), 0, False, p_rotation=1, rotation=(0.3, 0.3))
    result = transform(segmentation=labels, rng=rng(3))["segmentation"]
    assert result.dtype == dtype
    assert set(np.unique(result)) <= set(np.unique(labels))


def test_an_identity_map_is_a_crop() -> None:
    image = rng().normal(size=(1, 10, 12)).astype(np.float32)
    middle = image[:, 2:8, 3:9]
    turned = SpatialTransform((6, 6), 0, False, p_rotation=1, rotation=0)
    assert np.array_equal(turned(image=image, rng=rng())["image"], middle)
    cropped = SpatialTransform((6, 6), 0, False)(image=image, rng=rng())["image"]
    assert np.array_equal(cropped, middle)
    assert cropped.base is image
    whole = SpatialTransform((10, 12), 0, False)(image=image, rng=rng())["image"]
    assert whole is image


def test_callables_get_what_batchgeneratorsv2_gives_them() -> None:
    calls: list[object] = []

    def rotation(image: np.ndarray, dim: int, rng: np.random.Generator) -> float:
        calls.append((image.shape, dim))
        return float(rng.random())

    def magnitude(dim: int, patch_size: tuple[int, ...], deformation_scale: float) -> float:
        calls.append((dim, patch_size, deformation_scale))
        return 1.0

    transform = SpatialTransform(
        patch_size=(6, 7),
        patch_center_dist_from_border=0,
        random_crop=False,
        p_elastic_deform=1,
        elastic_deform_scale=0.25,
        elastic_deform_magnitude=magnitude,
        p_rotation=1,
        rotation=rotation,
    )
    image = np.zeros((1, 9, 9), np.float32)
    first = transform(image=image, rng=rng())["image"]
    assert ((1, 9, 9), 0) in calls
    assert (1, (6, 7), 0.25) in calls
    assert np.array_equal(transform(image=image, rng=rng())["image"], first)


def test_nan_and_infinity_stay_where_they_are() -> None:
    image = np.zeros((1, 20, 20), np.float32)
    image[0, 10, 10] = np.nan
    image[0, 3, 3] = np.inf
    transform = SpatialTransform((20, 20), 0, False, p_rotation=1, rotation=(0.3, 0.3))
    result = transform(image=image, rng=rng())["image"]
    assert 0 < (~np.isfinite(result)).sum() <= 8


def never() -> float:
    raise AssertionError("nothing is to be drawn")


def test_of_shears_and_shifts_at_probability_0_nothing_is_drawn_and_no_byte_changes() -> None:
    image = rng().normal(size=(1, 23, 20, 17)).astype(np.float32)
    options: dict[str, Any] = {
        "patch_size": (12, 14, 10),
        "patch_center_dist_from_border": 3,
        "random_crop": True,
        "p_rotation": 1,
        "rotation": (-1, 1),
        "p_scaling": 1,
    }
    plain = SpatialTransform(**options)
    off = SpatialTransform(**options, shear=never, translation=never)
    first = SeedTree(1).generator()
    second = SeedTree(1).generator()
    assert fingerprint(plain(image=image, rng=first)) == fingerprint(off(image=image, rng=second))
    assert first.bit_generator.state == second.bit_generator.state


@pytest.mark.parametrize("seed", range(60))
def test_a_patch_that_is_only_scaled_has_the_bytes_of_a_turned_one(seed: int) -> None:
    random = rng(seed)
    dims = 2 + seed % 2
    shape = random.integers(2, 40, dims)
    image = random.normal(size=(2, *shape)).astype(np.float32)
    voxels = random.integers(0, image.size, 4)
    image.reshape(-1)[voxels] = [np.nan, np.inf, -np.inf, -0.0]
    if seed % 3:
        factors = random.uniform(-1.5, 1.5, dims)
    else:
        factors = random.choice([0.5, 1.0, 1.5], dims)
    patch = [max(1, int(n)) for n in shape * random.uniform(0.2, 0.8)]
    transform = SpatialTransform(
        patch,
        0,
        False,
        padding_mode_image=BORDERS[seed % 2],
        align_corners=bool(random.integers(2)),
    )
    matrix = np.diag(factors)
    params = {
        "affine": matrix.tolist(),
        "elastic": None,
        "center_location_in_pixels": (shape / 2).tolist(),
    }
    scaled = transform.apply({"image": image}, params)["image"]
    # Too small to move a voxel, but no longer a diagonal matrix.
    matrix[0, 1] = 5e-324
    params["affine"] = matrix.tolist()
    turned = transform.apply({"image": image}, params)["image"]
    assert scaled.tobytes() == turned.tobytes()
