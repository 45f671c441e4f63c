"""In pipelines of TorchIO and MONAI bodies are turned in millimetres, and affines follow crops."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from detaug.transforms import (
    CenterCrop,
    Compose,
    Convert2DTo3D,
    Convert3DTo2D,
    Mirror,
    RandomCrop,
    Rot90,
    SpatialTransform,
    TransposeAxes,
)

pytest.importorskip("monai")
torchio = pytest.importorskip("torchio")

from monai.data import MetaTensor  # noqa: E402

import detaug.monai  # noqa: E402
import detaug.torchio  # noqa: E402

SPACING = (1.0, 1.0, 4.0)
# Oblique, and with an axis that runs backwards, as scanners have it.
TURN = np.array([[0.8, -0.6, 0], [0.6, 0.8, 0], [0, 0, -1]])
SHAPE = (56, 52, 14)

Result = tuple[dict[str, np.ndarray], np.ndarray]


def affine_of(spacing: Any = SPACING, turn: Any = TURN) -> np.ndarray:
    affine = np.eye(4)
    affine[:3, :3] = turn @ np.diag(spacing)
    affine[:3, 3] = (-12.5, 30.0, 7.25)
    return affine


def by_torchio(transform: Any, arrays: dict[str, np.ndarray], affine: np.ndarray) -> Result:
    """Return what TorchIO's pipelines give: arrays and one affine."""
    kinds = {"image": torchio.ScalarImage, "label": torchio.LabelMap}
    subject = torchio.Subject(
        **{
            name: kinds[name](tensor=torch.from_numpy(array), affine=affine)
            for name, array in arrays.items()
        }
    )
    moved = torchio.Compose([detaug.torchio.Wrap(transform)])(subject)
    results = {name: moved[name].data.numpy() for name in arrays}
    affines = [moved[name].affine for name in arrays]
    assert all(np.array_equal(affines[0], other) for other in affines)
    return results, affines[0]


def by_monai(transform: Any, arrays: dict[str, np.ndarray], affine: np.ndarray) -> Result:
    """Return what MONAI's pipelines give: arrays and one affine."""
    roles = {"image": "image", "label": "segmentation"}
    wrap = detaug.monai.Wrap(transform, {name: roles[name] for name in arrays})
    wrap.set_random_state(int(torch.randint(2**31, ()).item()))
    before = torch.from_numpy(affine)
    item = {name: MetaTensor(torch.from_numpy(array), before) for name, array in arrays.items()}
    moved = wrap(item)
    assert all(torch.equal(item[name].affine, before) for name in arrays), "the item was changed"
    results = {name: moved[name].as_tensor().numpy() for name in arrays}
    affines = [moved[name].affine.numpy() for name in arrays]
    assert all(np.array_equal(affines[0], other) for other in affines)
    return results, affines[0]


each_library = pytest.mark.parametrize("apply", [by_torchio, by_monai])


def ellipsoid(half_axes: Any, shape: Any = SHAPE, spacing: Any = SPACING) -> dict[str, np.ndarray]:
    """Return an ellipsoid in the middle: an image that fades out, and labels."""
    squares = np.zeros(shape)
    for axis, (n, length, half) in enumerate(zip(shape, spacing, half_axes, strict=True)):
        along_axis = [1] * len(shape)
        along_axis[axis] = -1
        places = (np.arange(n) - (n - 1) / 2) * length
        squares = squares + (places / half).reshape(along_axis) ** 2
    return {
        "image": (squares <= 1)[None].astype(np.float32),
        "label": (squares <= 1)[None].astype(np.int16),
    }


def measured_half_axes(array: np.ndarray, affine: np.ndarray) -> np.ndarray:
    """Return an ellipsoid's half axes in millimetres, by its second moments, from small to large."""
    weights = array[0].astype(np.float64).reshape(-1)
    places = np.indices(array.shape[1:]).reshape(3, -1)
    world = affine[:3, :3] @ places
    return np.sqrt(5 * np.linalg.eigvalsh(np.cov(world, aweights=weights)))


def turning(patch: Any = SHAPE, **arguments: Any) -> SpatialTransform:
    usual: dict[str, Any] = {"p_rotation": 1, "rotation": (-math.pi, math.pi)}
    return SpatialTransform(patch, 0, False, **{**usual, **arguments})


PIPELINES: dict[str, Callable[[], Any]] = {
    "turned": turning,
    "turned, then cropped": lambda: Compose([turning(), CenterCrop((50, 44, 12))]),
    "axes exchanged first": lambda: Compose(
        [
            Rot90(1, (1, 3), allowed_axes=(1, 2)),
            turning((56, 14, 52)),
            Mirror((0, 1)),
        ]
    ),
    "plane by plane": lambda: Compose([Convert3DTo2D(), turning((52, 14)), Convert2DTo3D()]),
}


@each_library
@pytest.mark.parametrize("name", PIPELINES)
def test_an_ellipsoid_keeps_its_half_axes_however_it_is_turned(apply: Any, name: str) -> None:
    torch.manual_seed(1)
    for _ in range(8):
        results, affine = apply(PIPELINES[name](), ellipsoid((5, 15, 15)), affine_of())
        for array in results.values():
            half_axes = measured_half_axes(array, affine)
            # Half a slice: what interpolation between slices of 4 mm makes of a sharp edge.
            assert np.abs(half_axes - (5, 15, 15)).max() < 2.0


def gaussian(deviations: Any, shape: Any, spacing: Any) -> np.ndarray:
    """Return a Gaussian of these standard deviations (mm) in the middle of an image."""
    squares = np.zeros(shape)
    for axis, (n, length, deviation) in enumerate(zip(shape, spacing, deviations, strict=True)):
        along_axis = [1] * len(shape)
        along_axis[axis] = -1
        places = (np.arange(n) - (n - 1) / 2) * length
        squares = squares + (places / deviation).reshape(along_axis) ** 2
    return np.exp(-squares / 2)[None].astype(np.float32)


def turned_by(degrees: float) -> np.ndarray:
    """Return the direction cosines of a scan that is turned about two axes."""
    c, s = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    about_first = np.array([[1, 0, 0], [0, c, -s], [0, s, c]])
    about_last = np.array([[c, -s, 0], [s, c, 0], [0, 0, 1]])
    return about_first @ about_last


@each_library
@pytest.mark.parametrize("degrees", [0, 30])
def test_what_is_smooth_keeps_its_shape_in_an_oblique_scan(apply: Any, degrees: float) -> None:
    shape = (84, 84, 22)
    affine = affine_of((1, 1, 4), turned_by(degrees))
    image = gaussian((6, 9, 9), shape, (1, 1, 4))
    torch.manual_seed(6)
    for _ in range(6):
        results, new_affine = apply(turning(shape), {"image": image}, affine)
        assert np.array_equal(new_affine, affine)
        deviations = measured_half_axes(results["image"], affine) / math.sqrt(5)
        # Linear interpolation alone makes 6.2 of 6 mm, where the slices are 4 mm apart.
        assert np.abs(deviations - (6, 9, 9)).max() < 0.3


def affine_by_torchio(image: np.ndarray, **params: Any) -> np.ndarray:
    usual = {"scales": (1, 1, 1), "degrees": (0, 0, 0), "translation": (0, 0, 0)}
    transform = torchio.Affine(**{**usual, **params}, default_pad_value=0)
    subject = torchio.ScalarImage(
        tensor=torch.from_numpy(image), affine=affine_of((1.5, 1, 3), np.eye(3))
    )
    result: np.ndarray = transform(subject).data.numpy()
    return result


def body() -> np.ndarray:
    """Return an image without symmetry that is 0 near its border."""
    parts = [
        np.roll(ellipsoid(half_axes, (40, 44, 16), (1, 1, 1))["image"], shift, (1, 2, 3))
        for half_axes, shift in [((6, 11, 4), (2, -3, 1)), ((3, 4, 3), (-6, 4, -1))]
    ]
    return parts[0] + 2 * parts[1]


# TorchIO says by how much larger, and where to, ours where the patch reads: the inverse.
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("angle", [0.3, -0.7])
def test_rotation_has_torchios_direction_and_millimetres(axis: int, angle: float) -> None:
    image = body()
    angles = [0.0, 0.0, 0.0]
    angles[axis] = angle
    ours = turning(image.shape[1:], rotation=lambda dim: angles[dim])
    result, _ = by_torchio(ours, {"image": image}, affine_of((1.5, 1, 3), np.eye(3)))
    degrees = [-math.degrees(value) for value in angles]
    expected = affine_by_torchio(image, degrees=degrees)
    assert np.abs(expected - image).max() > 0.5
    np.testing.assert_allclose(result["image"], expected, atol=2e-5)


def test_scaling_and_translation_have_torchios_millimetres() -> None:
    image = body()
    factors, shift = (0.8, 1.25, 1.1), (4.5, -3.0, 6.0)
    ours = turning(image.shape[1:], p_rotation=0, p_scaling=1, scaling=lambda dim: 1 / factors[dim])
    result, _ = by_torchio(ours, {"image": image}, affine_of((1.5, 1, 3), np.eye(3)))
    expected = affine_by_torchio(image, scales=factors)
    np.testing.assert_allclose(result["image"], expected, atol=2e-5)
    ours = turning(
        image.shape[1:], p_rotation=0, p_translation=1, translation=lambda dim: shift[dim]
    )
    result, _ = by_torchio(ours, {"image": image}, affine_of((1.5, 1, 3), np.eye(3)))
    expected = affine_by_torchio(image, translation=[-along for along in shift])
    np.testing.assert_allclose(result["image"], expected, atol=2e-5)


@each_library
@pytest.mark.parametrize("flat", [0, 1, 2])
def test_a_plane_stays_in_its_plane(apply: Any, flat: int) -> None:
    shape = [48, 48, 48]
    shape[flat] = 1
    disc = ellipsoid((15, 15, 15), shape, (1, 1, 1))
    everything = turning(
        shape,
        p_shear=1,
        p_translation=1,
        translation=(-3, 3),
        p_elastic_deform=1,
        elastic_deform_magnitude=(0, 1),
    )
    torch.manual_seed(2)
    before = int(disc["label"].sum())
    for _ in range(10):
        results, _ = apply(everything, disc, np.eye(4))
        assert abs(int(results["label"].sum()) - before) < 0.05 * before
        assert abs(float(results["image"].sum()) - before) < 0.05 * before
        scaled, _ = apply(
            turning(shape, p_scaling=1, scaling=1.25), disc, np.diag([1.0, 2.0, 1.0, 1.0])
        )
        assert abs(int(scaled["label"].sum()) * 1.25**2 - before) < 0.1 * before


MOVES: dict[str, Callable[[], Any]] = {
    "centre crop": lambda: CenterCrop((9, 12, 7)),
    "random crop": lambda: RandomCrop((11, 8, 7)),
    "padding": lambda: RandomCrop((25, 30, 15)),
    "patch": lambda: SpatialTransform((11, 12, 7), 6, True),
    "one after another": lambda: Compose([RandomCrop((16, 15, 9)), CenterCrop((11, 12, 8))]),
    "quarter turns": lambda: Compose([Rot90(3), RandomCrop((9, 9, 9))]),
    "axes exchanged": lambda: Compose([CenterCrop((10, 10, 10)), TransposeAxes((0, 1, 2))]),
}


@each_library
@pytest.mark.parametrize("name", MOVES)
def test_a_voxel_keeps_its_place_in_space(apply: Any, name: str) -> None:
    image = np.zeros((1, 17, 16, 12), np.float32)
    marks = {1.0: (8, 8, 6), 2.0: (7, 8, 6), 3.0: (8, 7, 6), 4.0: (8, 8, 5)}
    for value, place in marks.items():
        image[(0, *place)] = value
    torch.manual_seed(3)
    seen = 0
    for _ in range(10):
        results, affine = apply(MOVES[name](), {"image": image}, affine_of())
        for value, place in marks.items():
            for found in np.argwhere(results["image"][0] == value):
                seen += 1
                world = affine[:3, :3] @ found + affine[:3, 3]
                expected = affine_of()[:3, :3] @ place + affine_of()[:3, 3]
                np.testing.assert_allclose(world, expected, atol=1e-5)
    assert seen >= 20


def test_params_that_are_drawn_from_the_image_know_the_grid_too() -> None:
    torch.manual_seed(4)
    by_image = turning((50, 44, 12), rotation=lambda image, dim: float(image.max()) * (dim - 1))
    results, affine = by_torchio(by_image, ellipsoid((5, 15, 15)), affine_of())
    assert np.abs(measured_half_axes(results["image"], affine) - (5, 15, 15)).max() < 2.0
    np.testing.assert_allclose(affine[:3, 3], (affine_of() @ (3, 4, 1, 1))[:3])


def test_a_plane_of_monais_keeps_its_place_in_space() -> None:
    image = np.zeros((1, 17, 16), np.float32)
    image[0, 8, 7] = 1
    results, affine = by_monai(CenterCrop((6, 5)), {"image": image}, affine_of())
    (place,) = np.argwhere(results["image"][0])
    world = affine[:3, :2] @ place + affine[:3, 3]
    np.testing.assert_allclose(world, affine_of()[:3, :2] @ (8, 7) + affine_of()[:3, 3])


@each_library
def test_what_does_not_crop_leaves_the_affine_alone(apply: Any) -> None:
    for transform in (turning(), Mirror((0, 1, 2)), CenterCrop(SHAPE)):
        _, affine = apply(transform, ellipsoid((5, 15, 15)), affine_of())
        assert np.array_equal(affine, affine_of())


def test_images_of_different_spacings_are_refused() -> None:
    image = torch.ones(1, 8, 8, 8)
    subject = torchio.Subject(
        t1=torchio.ScalarImage(tensor=image, affine=np.eye(4)),
        t2=torchio.ScalarImage(tensor=image, affine=np.diag([1, 1, 2, 1])),
    )
    with pytest.raises(ValueError, match=r"must have one spacing, got t1 .* and t2"):
        detaug.torchio.Wrap(Mirror((0,)))(subject)
    items = {
        "image": MetaTensor(image, torch.eye(4)),
        "label": MetaTensor(image, torch.diag(torch.tensor([1.0, 1, 2, 1]))),
    }
    wrap = detaug.monai.Wrap(Mirror((0,)), {"image": "image", "label": "segmentation"})
    with pytest.raises(ValueError, match=r"must have one spacing, got image .* and label"):
        wrap(items)
