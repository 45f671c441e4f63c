"""Volumes read when needed give the bytes that arrays give, and no more of them is read than is
looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from detaug import SeedTree, fingerprint
from detaug.nnunet import training_transforms, validation_transforms
from detaug.transforms import CenterCrop, GaussianNoise, Mirror, SpatialTransform
from detaug.transforms.building.workspace import Between, LazyVolume


class Recorded(LazyVolume):
    """An array that notes what is read of it."""

    def __init__(self, array: np.ndarray) -> None:
        self.array, self.shape, self.dtype = array, array.shape, array.dtype
        self.boxes: list[tuple[list[int], list[int]]] = []

    def read(self, starts: Sequence[int], stops: Sequence[int]) -> np.ndarray:
        assert all(0 <= a < b <= n for a, b, n in zip(starts, stops, self.shape[1:], strict=True))
        self.boxes.append((list(starts), list(stops)))
        inside = tuple(slice(a, b) for a, b in zip(starts, stops, strict=True))
        return np.ascontiguousarray(self.array[(slice(None), *inside)]).copy()

    def lend(self, starts: Sequence[int], stops: Sequence[int], between: Between) -> np.ndarray:
        extents = (self.shape[0], *np.subtract(stops, starts))
        # what is looked at and was not read is seen, also before and behind the box
        array = np.full(np.prod(extents) + 20_000, 21845, self.dtype)[10_000:-10_000].reshape(
            extents
        )
        for first in range(starts[0], stops[0], 4):
            lows, highs = between(first, min(first + 4, stops[0]))
            if lows != highs:
                inside = tuple(
                    slice(low - a, high - a)
                    for low, high, a in zip(lows, highs, starts, strict=True)
                )
                array[(slice(None), *inside)] = self.read(lows, highs)
        return array

    @property
    def part_read(self) -> float:
        voxels = sum(int(np.prod(np.subtract(stops, starts))) for starts, stops in self.boxes)
        return voxels / int(np.prod(self.shape[1:]))


def sample(space: Sequence[int], channels: int = 2) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(5)
    image = rng.normal(size=(channels, *space)).astype(np.float32)
    return {"image": image, "segmentation": rng.integers(-1, 3, (1, *space)).astype(np.int16)}


def assert_same(eager: dict[str, Any], late: dict[str, Any]) -> None:
    assert list(eager) == list(late)
    assert fingerprint(eager) == fingerprint(late)


def both_ways(transform: Any, arrays: dict[str, np.ndarray], seed: int) -> list[Recorded]:
    """The volumes that gave what arrays give."""
    lazy = {key: Recorded(array) for key, array in arrays.items()}
    eager = transform(rng=SeedTree(seed).generator(0, 0, sample=0), **arrays)
    late = transform(rng=SeedTree(seed).generator(0, 0, sample=0), **lazy)
    assert_same(eager, late)
    return list(lazy.values())


MODES = [("bilinear", "bilinear"), ("nearest", "nearest"), ("bicubic", "bilinear")]


@pytest.mark.parametrize("border", ["zeros", "constant"])
@pytest.mark.parametrize("modes", MODES)
@pytest.mark.parametrize("space", [(30, 27, 33), (41, 38), (1, 35, 9)])
def test_spatial_transforms_give_the_same_bytes(
    space: tuple[int, ...], modes: tuple[str, str], border: str
) -> None:
    arrays = sample(space)
    for seed in range(6):
        transform = SpatialTransform(
            (14, 17, 15)[: len(space)], (0, 9)[seed % 2], bool(seed % 2), 0.3, (0.1, 0.2), (0, 3), p_rotation=0.7,
            rotation=(-1.0, 1.0), p_scaling=0.6, scaling=(0.4, 1.6), mode_image=modes[0], mode_seg=modes[1],
            padding_mode_image=border, border_mode_seg=border, padding_value_image=1.5, padding_value_seg=-1,
            align_corners=seed == 5,
        )  # fmt: skip
        both_ways(transform, arrays, seed)


@pytest.mark.parametrize("modes", MODES)
@pytest.mark.parametrize(
    "beside", [(60, 12, 9), (12, -50, 9), (12, 11, 70), (-40, 80, -60), (31, 25, 9)]
)
def test_a_patch_beside_the_volume_gives_the_same_bytes(
    beside: tuple[int, ...], modes: tuple[str, str]
) -> None:
    arrays = sample((30, 27, 33))
    transform = SpatialTransform((8, 9, 10), 0, False, mode_image=modes[0], mode_seg=modes[1])
    for affine in ([[1.0, 0, 0], [0, 1, 0], [0, 0, 1]], [[0.8, 0.6, 0], [-0.6, 0.8, 0], [0, 0, 1]]):
        params = {"affine": affine, "elastic": None, "center_location_in_pixels": list(beside)}
        lazy = {key: Recorded(array) for key, array in arrays.items()}
        assert_same(transform.apply(arrays, params), transform.apply(lazy, params))


@pytest.mark.parametrize("dummy_2d", [False, True])
def test_nnunets_pipeline_gives_the_same_bytes(dummy_2d: bool) -> None:
    transform = training_transforms(
        (16, 20, 20),
        rotation=(-0.5, 0.5),
        ds_scales=[[1, 1, 1], [0.5, 0.5, 0.5]],
        mirror_axes=(0, 1, 2),
        do_dummy_2d=dummy_2d,
    )
    arrays = sample((16, 29, 29) if dummy_2d else (29, 33, 33))
    for seed in range(12):
        both_ways(transform, arrays, seed)


def test_a_pipeline_without_a_spatial_transform_reads_everything_once() -> None:
    arrays = sample((12, 13, 14))
    for transform in (
        validation_transforms([[1, 1, 1], [0.5] * 3]),
        GaussianNoise((0.1, 0.2)),
        Mirror((0, 1)),
    ):
        assert [len(volume.boxes) for volume in both_ways(transform, arrays, 0)] == [1, 1]


def test_what_is_not_turned_is_read_as_far_as_the_patch_reaches() -> None:
    for transform in (SpatialTransform((10, 10, 10), 0, False), CenterCrop((10, 10, 10))):
        volumes = both_ways(transform, sample((30, 30, 30)), 0)
        assert [volume.boxes for volume in volumes] == [[([10] * 3, [20] * 3)]] * 2


def test_of_a_volume_beside_arrays_little_more_than_the_patch_is_read() -> None:
    arrays = sample((80, 80, 80))
    transform = SpatialTransform((24, 24, 24), 0, False, p_rotation=1, rotation=(0.05, 0.05))
    expected = transform(rng=SeedTree(1).generator(0, 0), **arrays)
    volume = Recorded(arrays["image"])
    got = transform(
        rng=SeedTree(1).generator(0, 0), image=volume, segmentation=arrays["segmentation"]
    )
    assert_same(expected, got)
    assert volume.part_read < (36 / 80) ** 3


def test_of_the_box_around_a_turned_patch_the_corners_are_not_read() -> None:
    arrays = sample((80, 80, 80))
    transform = SpatialTransform((40, 40, 40), 0, False, p_rotation=1, rotation=(0.5, 0.5))
    for volume in both_ways(transform, arrays, 1):
        lows, highs = (
            np.min([low for low, _ in volume.boxes], 0),
            np.max([high for _, high in volume.boxes], 0),
        )
        assert volume.part_read < 0.85 * np.prod(highs - lows) / 80**3
