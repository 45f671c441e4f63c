"""In pipelines of TorchIO and MONAI bodies are turned in millimetres, and affines follow crops."""

from __future__ import annotations

import math
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


def the_one(affines: list[np.ndarray]) -> np.ndarray:
    """Return the affine that all of them are."""
    first, *others = affines
    for other in others:
        assert np.array_equal(first, other)
    return first


def by_torchio(transform: Any, arrays: dict[str, np.ndarray], affine: np.ndarray) -> Result:
    """Return what TorchIO's pipelines give: arrays and one affine."""
    kinds = {"image": torchio.ScalarImage, "label": torchio.LabelMap}
    images = {}
    for name, array in arrays.items():
        tensor = torch.from_numpy(array)
        images[name] = kinds[name](tensor=tensor, affine=affine)
    pipeline = torchio.Compose([detaug.torchio.Wrap(transform)])
    moved = pipeline(torchio.Subject(**images))
    results = {name: moved[name].data.numpy() for name in arrays}
    return results, the_one([moved[name].affine for name in arrays])


def by_monai(transform: Any, arrays: dict[str, np.ndarray], affine: np.ndarray) -> Result:
    """Return what MONAI's pipelines give: arrays and one affine."""
    roles = {"image": "image", "label": "segmentation"}
    wrap = detaug.monai.Wrap(transform, {name: roles[name] for name in arrays})
    seed = torch.randint(2**31, ())
    wrap.set_random_state(int(seed))
    before = torch.from_numpy(affine)
    item = {}
    for name, array in arrays.items():
        tensor = torch.from_numpy(array)
        item[name] = MetaTensor(tensor, before)
    moved = wrap(item)
    for image in item.values():
        assert torch.equal(image.affine, before), "the item was changed"
    results = {name: moved[name].as_tensor().numpy() for name in arrays}
    return results, the_one([moved[name].affine.numpy() for name in arrays])


each_library = pytest.mark.parametrize("apply", [by_torchio, by_monai])


def ellipsoid(half_axes: Any, shape: Any = SHAPE, spacing: Any = SPACING) -> dict[str, np.ndarray]:
    """Return an ellipsoid in the middle: an image that fades out, and labels."""
    is_within = squared_radius(half_axes, shape, spacing) <= 1
    return {
        "image": is_within[None].astype(np.float32),
        "label": is_within[None].astype(np.int16),
    }


def squared_radius(unit_lengths: Any, shape: Any, spacing: Any) -> np.ndarray:
    """Return voxels' squared distances from the middle, in units (mm) of each axis's own."""
    squares = np.zeros(shape)
    for axis, extent in enumerate(shape):
        along_axis = [1] * len(shape)
        along_axis[axis] = -1
        middle = (extent - 1) / 2
        places = np.arange(extent) - middle
        distances = places * spacing[axis] / unit_lengths[axis]
        squares = squares + distances.reshape(along_axis) ** 2
    return squares


def measured_half_axes(array: np.ndarray, affine: np.ndarray) -> np.ndarray:
    """Return an ellipsoid's half axes (mm), by its second moments, from small to large."""
    weights = array[0].astype(np.float64)
    places = np.indices(array.shape[1:])
    world = affine[:3, :3] @ places.reshape(3, -1)
    moments = np.cov(world, aweights=weights.reshape(-1))
    return np.sqrt(5 * np.linalg.eigvalsh(moments))


def turning(patch: Any = SHAPE, **arguments: Any) -> SpatialTransform:
    usual: dict[str, Any] = {"p_rotation": 1, "rotation": (-math.pi, math.pi)}
    return SpatialTransform(patch, 0, False, **{**usual, **arguments})


PIPELINES: dict[str, list[Any]] = {
    "turned": [turning()],
    "turned, then cropped": [turning(), CenterCrop((50, 44, 12))],
    "axes exchanged first": [
        Rot90(1, (1, 3), allowed_axes=(1, 2)),
        turning((56, 14, 52)),
        Mirror((0, 1)),
    ],
    "plane by plane": [Convert3DTo2D(), turning((52, 14)), Convert2DTo3D()],
}


@each_library
@pytest.mark.parametrize("name", PIPELINES)
def test_an_ellipsoid_keeps_its_half_axes_however_it_is_turned(apply: Any, name: str) -> None:
    torch.manual_seed(1)
    for _ in range(8):
        pipeline = Compose(PIPELINES[name])
        results, affine = apply(pipeline, ellipsoid((5, 15, 15)), affine_of())
        for array in results.values():
            half_axes = measured_half_axes(array, affine)
            # Half a slice: what interpolation between slices of 4 mm makes of a sharp edge.
            assert np.abs(half_axes - (5, 15, 15)).max() < 2.0


def gaussian(deviations: Any, shape: Any, spacing: Any) -> np.ndarray:
    """Return a Gaussian of these standard deviations (mm) in the middle of an image."""
    values = np.exp(-squared_radius(deviations, shape, spacing) / 2)
    return values[None].astype(np.float32)


def turned_by(degrees: float) -> np.ndarray:
    """Return the direction cosines of a scan that is turned about two axes."""
    angle = math.radians(degrees)
    c = math.cos(angle)
    s = math.sin(angle)
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


#: Of a scan along the axes of space.
STRAIGHT = affine_of((1.5, 1, 3), np.eye(3))


def affine_by_torchio(image: np.ndarray, **params: Any) -> np.ndarray:
    usual = {"scales": (1, 1, 1), "degrees": (0, 0, 0), "translation": (0, 0, 0)}
    transform = torchio.Affine(**{**usual, **params}, default_pad_value=0)
    scan = torchio.ScalarImage(tensor=torch.from_numpy(image), affine=STRAIGHT)
    result: np.ndarray = transform(scan).data.numpy()
    return result


def body() -> np.ndarray:
    """Return an image without symmetry that is 0 near its border."""
    shape = (40, 44, 16)
    cube = (1, 1, 1)
    axes = (1, 2, 3)
    large = ellipsoid((6, 11, 4), shape, cube)["image"]
    small = ellipsoid((3, 4, 3), shape, cube)["image"]
    return np.roll(large, (2, -3, 1), axes) + 2 * np.roll(small, (-6, 4, -1), axes)


class PerAxis:
    """Gives each axis a value of its own, as a function of ``dim``."""

    def __init__(self, values: Any) -> None:
        self.values = values

    def __call__(self, dim: int) -> float:
        return float(self.values[dim])


# TorchIO says by how much larger, and where to, ours where the patch reads: the inverse.
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("angle", [0.3, -0.7])
def test_rotation_has_torchios_direction_and_millimetres(axis: int, angle: float) -> None:
    image = body()
    angles = [0.0, 0.0, 0.0]
    angles[axis] = angle
    ours = turning(image.shape[1:], rotation=PerAxis(angles))
    result, _ = by_torchio(ours, {"image": image}, STRAIGHT)
    degrees = [-math.degrees(value) for value in angles]
    expected = affine_by_torchio(image, degrees=degrees)
    assert np.abs(expected - image).max() > 0.5
    np.testing.assert_allclose(result["image"], expected, atol=2e-5)


def test_scaling_and_translation_have_torchios_millimetres() -> None:
    image = body()
    patch = image.shape[1:]
    factors = (0.8, 1.25, 1.1)
    inverse = [1 / factor for factor in factors]
    ours = turning(patch, p_rotation=0, p_scaling=1, scaling=PerAxis(inverse))
    result, _ = by_torchio(ours, {"image": image}, STRAIGHT)
    expected = affine_by_torchio(image, scales=factors)
    np.testing.assert_allclose(result["image"], expected, atol=2e-5)
    shift = (4.5, -3.0, 6.0)
    ours = turning(patch, p_rotation=0, p_translation=1, translation=PerAxis(shift))
    result, _ = by_torchio(ours, {"image": image}, STRAIGHT)
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
        larger = turning(shape, p_scaling=1, scaling=1.25)
        scaled, _ = apply(larger, disc, np.diag([1.0, 2.0, 1.0, 1.0]))
        assert abs(int(scaled["label"].sum()) * 1.25**2 - before) < 0.1 * before


MOVES: dict[str, list[Any]] = {
    "centre crop": [CenterCrop((9, 12, 7))],
    "random crop": [RandomCrop((11, 8, 7))],
    "padding": [RandomCrop((25, 30, 15))],
    "patch": [SpatialTransform((11, 12, 7), 6, True)],
    "one after another": [RandomCrop((16, 15, 9)), CenterCrop((11, 12, 8))],
    "quarter turns": [Rot90(3), RandomCrop((9, 9, 9))],
    "axes exchanged": [CenterCrop((10, 10, 10)), TransposeAxes((0, 1, 2))],
}


def in_space(affine: np.ndarray, voxel: Any) -> np.ndarray:
    """Return where a voxel lies, in millimetres."""
    place: np.ndarray = affine @ (*voxel, 1)
    return place[:3]


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
        results, affine = apply(Compose(MOVES[name]), {"image": image}, affine_of())
        for value, place in marks.items():
            expected = in_space(affine_of(), place)
            for found in np.argwhere(results["image"][0] == value):
                seen += 1
                np.testing.assert_allclose(in_space(affine, found), expected, atol=1e-5)
    assert seen >= 20


def test_params_that_are_drawn_from_the_image_know_the_grid_too() -> None:
    torch.manual_seed(4)

    def angle(image: np.ndarray, dim: int) -> float:
        return float(image.max()) * (dim - 1)

    by_image = turning((50, 44, 12), rotation=angle)
    results, affine = by_torchio(by_image, ellipsoid((5, 15, 15)), affine_of())
    half_axes = measured_half_axes(results["image"], affine)
    assert np.abs(half_axes - (5, 15, 15)).max() < 2.0
    np.testing.assert_allclose(affine[:3, 3], in_space(affine_of(), (3, 4, 1)))


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
