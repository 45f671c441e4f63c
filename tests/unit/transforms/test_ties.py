"""Labels equal batchgeneratorsv2's, except where coordinates lie half-way between two voxels.

There detaug takes the voxel with the even index. nnU-Net reads odd patches for even ones (205
voxels for 128), so the coordinates along an axis that is not rotated all lie half-way.
batchgeneratorsv2 takes the even one as well, but of coordinates in float32, which a rounding may
have moved.
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

#: The rounding of the reference in float64: of coordinates in voxels, and of weights.
TIE = 1e-9
#: The largest share of voxels that may differ.
ALLOWED = 1e-4


def fitted(array: np.ndarray, shape: tuple[int, ...], outside: int) -> np.ndarray:
    """Return the middle of an array in this shape, padded where the array is shorter."""
    widths = []
    for new_length, length in zip(shape, array.shape, strict=True):
        missing = max(0, new_length - length)
        widths.append((missing // 2, missing - missing // 2))
    padded = np.pad(array, widths, constant_values=outside)
    middle = []
    for new_length, length in zip(shape, padded.shape, strict=True):
        start = (length - new_length) // 2
        middle.append(slice(start, start + new_length))
    return padded[tuple(middle)]


def five_times_a_plane(volume: np.ndarray) -> np.ndarray:
    return np.kron(volume[:, :, 75], np.ones((5, 5), volume.dtype))


def head(shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return a real MRI (1, *shape), or a plane of it, with labels -1 (outside), 0, 1 and 2."""
    template = load_template()
    image = template.image
    is_outside = image == image.min()
    labels = np.where(is_outside, -1, template.labels).astype(np.int16)
    if len(shape) == 2:
        image = five_times_a_plane(image)
        labels = five_times_a_plane(labels)
    fitted_image = fitted(image, shape, 0)[None]
    fitted_labels = fitted(labels, shape, -1)[None]
    return np.ascontiguousarray(fitted_image, np.float32), np.ascontiguousarray(fitted_labels)


def coordinates_of(
    transform: SpatialTransform, params: dict[str, Any], shape: tuple[int, ...]
) -> np.ndarray:
    """Return the source's coordinates of the patch's voxels, in voxels, (*patch, axes), float64."""
    grid = sampling_grid(transform, params, shape, torch.float64).flip(-1).numpy()
    return ((grid + 1) * np.array(shape) - 1) / 2


def original_of(transform: SpatialTransform) -> Any:
    """Return batchgeneratorsv2's transform with the same options."""
    spatial = pytest.importorskip("batchgeneratorsv2.transforms.spatial.spatial")
    names = spatial.SpatialTransform.__init__.__code__.co_varnames
    options = {name: value for name, value in vars(transform).items() if name in names}
    return spatial.SpatialTransform(**options)


def shares_that_differ(
    transform: SpatialTransform, params: dict[str, Any], image: np.ndarray, labels: np.ndarray
) -> dict[str, float]:
    """Return the share of the patch's voxels that differ from batchgeneratorsv2's.

    Ties do not count. The result at a tie is asserted to be one of the possible ones.
    """
    original = original_of(transform)
    shape = image.shape[1:]
    reference = reference_params(transform, params, shape)
    other_image = original._apply_to_image(torch.from_numpy(image), **reference).numpy()
    other_labels = original._apply_to_segmentation(torch.from_numpy(labels), **reference).numpy()
    result = transform.apply({"image": image, "segmentation": labels}, params)
    new_image = result["image"]
    new_labels = result["segmentation"]
    coordinates = coordinates_of(transform, params, shape)
    shares = {}
    if transform.mode_image == "nearest":
        is_tie = assert_a_neighbour(new_image[0], image[0], coordinates, outside=0)
        shares["image"] = share_apart_from(is_tie, new_image, other_image)
    if transform.mode_seg == "nearest":
        is_tie = assert_a_neighbour(new_labels[0], labels[0], coordinates, outside=-1)
    else:
        is_tie = assert_a_largest_weight(new_labels[0], labels[0], transform, params)
    shares["segmentation"] = share_apart_from(is_tie, new_labels, other_labels)
    return shares


def share_apart_from(is_tie: np.ndarray, actual: np.ndarray, expected: np.ndarray) -> float:
    """Return the share of voxels that differ and are no tie."""
    differs = (actual != expected)[0]
    return float((differs & ~is_tie).mean())


def assert_a_neighbour(
    result: np.ndarray, source: np.ndarray, coordinates: np.ndarray, outside: int
) -> np.ndarray:
    """Assert that every voxel has the value of one of its nearest voxels in the source.

    Returns:
        True where a voxel has more than one nearest voxel.
    """
    low = np.floor(coordinates + 0.5 - TIE).astype(int)
    high = np.floor(coordinates + 0.5 + TIE).astype(int)
    wider = np.pad(source, 1, constant_values=outside)
    is_right = np.zeros(result.shape, bool)
    for ends in product((low, high), repeat=source.ndim):
        index = []
        for axis, end in enumerate(ends):
            last = source.shape[axis] + 1
            index.append(np.clip(end[..., axis] + 1, 0, last))
        is_right |= result == wider[tuple(index)]
    assert is_right.all()
    return (low != high).any(axis=-1)


def assert_a_largest_weight(
    result: np.ndarray, source: np.ndarray, transform: SpatialTransform, params: dict[str, Any]
) -> np.ndarray:
    """Assert that every voxel has one of the labels with the largest weight.

    Returns:
        True where a voxel has more than one such label.
    """
    values, weights = label_weights_in_float64(transform, params, source)
    second, largest = np.sort(weights, axis=0)[-2:]
    indices = np.searchsorted(values, result)[None]
    (own,) = np.take_along_axis(weights, indices, axis=0)
    assert (largest - own < 1e-8).all()
    return largest - second < TIE


@pytest.mark.parametrize("name", ["nnUNetTrainerDA5", "nnUNetTrainerDA5ord0"])
@pytest.mark.parametrize(
    ("patch", "enlarged"), [((40, 36, 32), (79, 71, 63)), ((128, 96), (183, 137))]
)
def test_labels_are_those_of_batchgeneratorsv2_but_for_exact_ties(
    name: str, patch: tuple[int, ...], enlarged: tuple[int, ...]
) -> None:
    angle = np.pi if len(patch) == 2 else np.pi / 6
    pipeline = TRAINING_TRANSFORMS[name](patch, (-angle, angle), None, None, False)
    (transform,) = [part for part in pipeline.transforms if isinstance(part, SpatialTransform)]
    # Most samples are to be resampled rather than only cropped.
    transform.p_rotation = 0.7
    transform.p_scaling = 0.7
    image, labels = head(enlarged)
    shapes = {"image": image.shape, "segmentation": labels.shape}
    for seed in range(8):
        params = transform.sample(SeedTree(20261122).generator(0, seed), shapes)
        if params["affine"] is None:
            continue
        for share in shares_that_differ(transform, params, image, labels).values():
            assert share <= ALLOWED, (seed, params)


@pytest.mark.parametrize(("mode", "allowed"), [("nearest", 1e-4), ("bilinear", 3e-4)])
def test_labels_without_any_structure_differ_at_few_voxels_more(mode: str, allowed: float) -> None:
    # Labels are drawn independently for each voxel. Neighbours then mostly have different labels,
    # and weights that float16 rounds to ties are common.
    rng = np.random.default_rng(0)
    image = rng.normal(size=(1, 91, 83, 77)).astype(np.float32)
    labels = rng.integers(0, 4, image.shape).astype(np.int16)
    transform = SpatialTransform(
        (56, 52, 48),
        0,
        False,
        p_rotation=1,
        rotation=(-0.5, 0.5),
        padding_value_seg=-1,
        mode_image="nearest",
        mode_seg=mode,
        border_mode_seg="constant",
    )
    shapes = {"image": image.shape, "segmentation": labels.shape}
    for seed in range(3):
        params = transform.sample(SeedTree(5).generator(0, seed), shapes)
        shares = shares_that_differ(transform, params, image, labels)
        assert shares["image"] <= ALLOWED
        assert shares["segmentation"] <= allowed


#: The voxels that are taken at the coordinates 0.5, 1.5, ... 11.5.
EVEN = [0, 2, 2, 4, 4, 6, 6, 8, 8, 10, 10, 12]


@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("angle", [0.0, 0.4])
def test_half_way_between_two_voxels_the_one_of_even_number_is_taken(
    mode: str, axis: int, angle: float
) -> None:
    space = [9, 9, 9]
    space[axis] = 13
    patch = [3, 3, 3]
    patch[axis] = 12
    along_axis = [1, 1, 1]
    along_axis[axis] = 13
    numbers = np.arange(13, dtype=np.int16).reshape(along_axis)
    labels = np.broadcast_to(numbers, space).copy()[None]
    transform = SpatialTransform(patch, 0, False, mode_image="nearest", mode_seg=mode)
    # A rotation about the axis itself moves nothing along it.
    angles = [0.0, 0.0, 0.0]
    angles[axis] = angle
    params = {
        "affine": rotation(angles),
        "elastic": None,
        "center_location_in_pixels": [length / 2 for length in space],
    }
    sample = {"image": labels.astype(np.float32), "segmentation": labels}
    for array in transform.apply(sample, params).values():
        lines = np.moveaxis(array[0], axis, 2)
        assert (lines == EVEN).all()
