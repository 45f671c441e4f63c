"""Lazy volumes give the same bytes as arrays, and only the voxels that are needed are read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from detaug import SeedTree, fingerprint
from detaug.nnunet import training_transforms, validation_transforms
from detaug.transforms import CenterCrop, GaussianNoise, Mirror, SpatialTransform
from detaug.transforms.building.workspace import Between, LazyVolume


def slices(starts: Sequence[int], stops: Sequence[int]) -> tuple[slice, ...]:
    """Return the index of a box in all channels."""
    within = tuple(slice(start, stop) for start, stop in zip(starts, stops, strict=True))
    return (slice(None), *within)


class Recorded(LazyVolume):
    """A lazy volume that records the boxes that are read."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        self.shape = array.shape
        self.dtype = array.dtype
        self.boxes: list[tuple[list[int], list[int]]] = []

    def read(self, starts: Sequence[int], stops: Sequence[int]) -> np.ndarray:
        for start, stop, length in zip(starts, stops, self.shape[1:], strict=True):
            assert 0 <= start < stop <= length
        self.boxes.append((list(starts), list(stops)))
        return self.array[slices(starts, stops)].copy()

    def lend(self, starts: Sequence[int], stops: Sequence[int], between: Between) -> np.ndarray:
        shape = (self.shape[0], *np.subtract(stops, starts))
        # Voxels that are used without having been read show this value, also outside of the box.
        memory = np.full(np.prod(shape) + 20_000, 21845, self.dtype)
        array = memory[10_000:-10_000].reshape(shape)
        for first in range(starts[0], stops[0], 4):
            lows, highs = between(first, min(first + 4, stops[0]))
            if lows != highs:
                box = slices(np.subtract(lows, starts), np.subtract(highs, starts))
                array[box] = self.read(lows, highs)
        return array

    @property
    def part_read(self) -> float:
        """The number of voxels that were read, as a share of all voxels."""
        num_voxels = 0
        for starts, stops in self.boxes:
            num_voxels += int(np.prod(np.subtract(stops, starts)))
        return num_voxels / int(np.prod(self.shape[1:]))


def recorded(arrays: dict[str, np.ndarray]) -> dict[str, Recorded]:
    return {key: Recorded(array) for key, array in arrays.items()}


def sample(space: Sequence[int]) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(5)
    image = rng.normal(size=(2, *space)).astype(np.float32)
    labels = rng.integers(-1, 3, (1, *space)).astype(np.int16)
    return {"image": image, "segmentation": labels}


def assert_same(eager: dict[str, Any], lazy: dict[str, Any]) -> None:
    assert list(eager) == list(lazy)
    assert fingerprint(eager) == fingerprint(lazy)


def of_sample(seed: int) -> np.random.Generator:
    """Return a sample's Generator."""
    return SeedTree(seed).generator(0, 0, sample=0)


def assert_same_bytes(transform: Any, arrays: dict[str, np.ndarray], seed: int) -> list[Recorded]:
    """Assert that lazy volumes give the bytes that arrays give; return the volumes."""
    volumes = recorded(arrays)
    eager = transform(rng=of_sample(seed), **arrays)
    lazy = transform(rng=of_sample(seed), **volumes)
    assert_same(eager, lazy)
    return list(volumes.values())


#: Interpolation of the image and of the labels.
MODES = [
    ("bilinear", "bilinear"),
    ("nearest", "nearest"),
    ("bicubic", "bilinear"),
]


@pytest.mark.parametrize("border", ["zeros", "constant"])
@pytest.mark.parametrize("modes", MODES)
@pytest.mark.parametrize("space", [(30, 27, 33), (41, 38), (1, 35, 9)])
def test_spatial_transforms_give_the_same_bytes(
    space: tuple[int, ...], modes: tuple[str, str], border: str
) -> None:
    arrays = sample(space)
    mode_image, mode_seg = modes
    options: dict[str, Any] = {
        "patch_size": (14, 17, 15)[: len(space)],
        "p_elastic_deform": 0.3,
        "elastic_deform_scale": (0.1, 0.2),
        "elastic_deform_magnitude": (0, 3),
        "p_rotation": 0.7,
        "rotation": (-1.0, 1.0),
        "p_scaling": 0.6,
        "scaling": (0.4, 1.6),
        "mode_image": mode_image,
        "mode_seg": mode_seg,
        "padding_mode_image": border,
        "border_mode_seg": border,
        "padding_value_image": 1.5,
        "padding_value_seg": -1,
    }
    in_the_middle = {"patch_center_dist_from_border": 0, "random_crop": False}
    anywhere = {"patch_center_dist_from_border": 9, "random_crop": True}
    for seed in (0, 2, 4):
        assert_same_bytes(SpatialTransform(**options, **in_the_middle), arrays, seed)
    for seed in (1, 3):
        assert_same_bytes(SpatialTransform(**options, **anywhere), arrays, seed)
    assert_same_bytes(SpatialTransform(**options, **anywhere, align_corners=True), arrays, 5)


IDENTITY = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
ROTATION = [[0.8, 0.6, 0.0], [-0.6, 0.8, 0.0], [0.0, 0.0, 1.0]]
#: Centres of patches outside of the volume. The last one reaches into it.
OUTSIDE = [
    (60, 12, 9),
    (12, -50, 9),
    (12, 11, 70),
    (-40, 80, -60),
    (31, 25, 9),
]


@pytest.mark.parametrize("affine", [IDENTITY, ROTATION])
@pytest.mark.parametrize("modes", MODES)
@pytest.mark.parametrize("center", OUTSIDE)
def test_a_patch_beside_the_volume_gives_the_same_bytes(
    center: tuple[int, ...], modes: tuple[str, str], affine: list[list[float]]
) -> None:
    arrays = sample((30, 27, 33))
    mode_image, mode_seg = modes
    transform = SpatialTransform((8, 9, 10), 0, False, mode_image=mode_image, mode_seg=mode_seg)
    params = {"affine": affine, "elastic": None, "center_location_in_pixels": list(center)}
    expected = transform.apply(arrays, params)
    assert_same(expected, transform.apply(recorded(arrays), params))


@pytest.mark.parametrize("dummy_2d", [False, True])
def test_nnunets_pipeline_gives_the_same_bytes(dummy_2d: bool) -> None:
    transform = training_transforms(
        (16, 20, 20),
        rotation=(-0.5, 0.5),
        ds_scales=[[1, 1, 1], [0.5, 0.5, 0.5]],
        mirror_axes=(0, 1, 2),
        do_dummy_2d=dummy_2d,
    )
    space = (16, 29, 29) if dummy_2d else (29, 33, 33)
    arrays = sample(space)
    for seed in range(12):
        assert_same_bytes(transform, arrays, seed)


@pytest.mark.parametrize(
    "transform",
    [
        validation_transforms([[1, 1, 1], [0.5, 0.5, 0.5]]),
        GaussianNoise((0.1, 0.2)),
        Mirror((0, 1)),
    ],
)
def test_a_pipeline_without_a_spatial_transform_reads_everything_once(transform: Any) -> None:
    volumes = assert_same_bytes(transform, sample((12, 13, 14)), 0)
    assert [len(volume.boxes) for volume in volumes] == [1, 1]


@pytest.mark.parametrize(
    "transform", [SpatialTransform((10, 10, 10), 0, False), CenterCrop((10, 10, 10))]
)
def test_what_is_not_turned_is_read_as_far_as_the_patch_reaches(transform: Any) -> None:
    middle = ([10, 10, 10], [20, 20, 20])
    for volume in assert_same_bytes(transform, sample((30, 30, 30)), 0):
        assert volume.boxes == [middle]


def turned(size: int, angle: float) -> SpatialTransform:
    return SpatialTransform((size,) * 3, 0, False, p_rotation=1, rotation=(angle, angle))


def test_of_a_volume_beside_arrays_little_more_than_the_patch_is_read() -> None:
    arrays = sample((80, 80, 80))
    transform = turned(24, 0.05)
    expected = transform(rng=of_sample(1), **arrays)
    volume = Recorded(arrays["image"])
    result = transform(rng=of_sample(1), image=volume, segmentation=arrays["segmentation"])
    assert_same(expected, result)
    assert volume.part_read < (36 / 80) ** 3


def test_of_the_box_around_a_turned_patch_the_corners_are_not_read() -> None:
    for volume in assert_same_bytes(turned(40, 0.5), sample((80, 80, 80)), 1):
        lowest = np.min([low for low, _ in volume.boxes], axis=0)
        highest = np.max([high for _, high in volume.boxes], axis=0)
        part_in_box = np.prod(highest - lowest) / 80**3
        assert volume.part_read < 0.85 * part_in_box
