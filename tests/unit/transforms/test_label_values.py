"""`SpatialTransform` takes labels of every dtype and size, and always refuses other numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from detaug import SeedTree
from detaug.transforms import CenterCrop, Compose, DownsampleSegForDS, RemoveLabel, SpatialTransform
from detaug.transforms.building.workspace import LazyVolume


def rng(seed: int) -> np.random.Generator:
    return SeedTree(seed).generator(0)


SHAPES = {3: (20, 17, 19), 2: (33, 30)}


def spatial(dims: int = 3, **arguments: Any) -> SpatialTransform:
    """Return a transform that resamples about half of the samples, in all possible ways."""
    defaults: dict[str, Any] = {
        "p_rotation": 0.3,
        "rotation": (-0.8, 0.8),
        "p_scaling": 0.2,
        "p_elastic_deform": 0.1,
        "padding_value_seg": -1,
        "border_mode_seg": "constant",
    }
    return SpatialTransform((16, 18, 14)[:dims], 5, True, **{**defaults, **arguments})


def labels_of(dims: int, seed: int = 0) -> np.ndarray:
    """Return blocks of labels 0 to 6, two channels, int16."""
    space = SHAPES[dims]
    num_blocks = [length // 3 + 1 for length in space]
    blocks = np.random.default_rng(seed).integers(0, 7, (2, *num_blocks), np.int16)
    for axis, length in enumerate(space, 1):
        blocks = blocks.repeat(3, axis).take(range(length), axis)
    return blocks


#: Large labels for -1 ... 6, in rising order too: of labels of equal weight the lowest one wins.
WIDE = np.array([-1, 0, 40_000, 40_001, 120_000, 2**24 + 1, 2**30, 2**31 - 1])


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint32, np.uint64, np.float64])
@pytest.mark.parametrize("mode_seg", ["bilinear", "nearest"])
@pytest.mark.parametrize("dims", [3, 2])
def test_wide_labels_come_out_where_small_ones_do(dtype: Any, mode_seg: str, dims: int) -> None:
    is_signed = np.dtype(dtype).kind != "u"
    padding = -1 if is_signed else 0
    transform = spatial(dims, mode_seg=mode_seg, padding_value_seg=padding)
    small = labels_of(dims)
    wide = WIDE[small + 1].astype(dtype)
    for seed in range(15):
        params = transform.sample(rng(seed), {"segmentation": small.shape})
        of_small = transform.apply({"segmentation": small}, params)["segmentation"]
        result = transform.apply({"segmentation": wide}, params)["segmentation"]
        assert result.dtype == dtype
        expected = WIDE[of_small + 1].astype(dtype)
        assert np.array_equal(result, expected)


def test_a_padding_that_int16_does_not_hold_is_resampled_too() -> None:
    transform = spatial(padding_value_seg=70_000, p_scaling=1, scaling=(2, 2.5))
    small = labels_of(3)
    result = transform(segmentation=small.astype(np.int32), rng=rng(1))["segmentation"]
    assert 70_000 in result
    assert set(np.unique(result)) <= {*range(7), 70_000}


LABELS = labels_of(3)
ENDS_OF_INT32 = np.where(LABELS == 6, 2**31 - 1, LABELS.astype(np.int64))
ENDS_OF_INT32[LABELS == 5] = -(2**31)


@pytest.mark.parametrize("seed", range(6))
def test_the_least_and_the_largest_label_of_int32_are_taken(seed: int) -> None:
    result = spatial()(segmentation=ENDS_OF_INT32, rng=rng(seed))["segmentation"]
    assert result.dtype == np.int64
    assert {-(2**31), 2**31 - 1} <= set(np.unique(result))


REFUSED = {
    "soft labels": (LABELS.astype(np.float32) + np.float32(0.25), r"has \d\.25\b"),
    "NaN": (np.where(LABELS == 6, np.nan, LABELS), "has nan"),
    "infinity": (np.where(LABELS == 6, np.inf, LABELS), "to inf"),
    "large labels": (LABELS.astype(np.int64) + 2**31, "2147483648 to 2147483654"),
    "large floats": (LABELS.astype(np.float64) * 1e9, "to 6000000000"),
}


@pytest.mark.parametrize("kind", REFUSED)
@pytest.mark.parametrize("as_tensor", [False, True])
def test_what_is_no_label_is_refused_whatever_is_drawn(kind: str, as_tensor: bool) -> None:
    labels: Any
    labels, message = REFUSED[kind]
    if as_tensor:
        labels = torch.from_numpy(labels)
    for seed in range(12):
        with pytest.raises(ValueError, match=message):
            spatial()(segmentation=labels, rng=rng(seed))


class Held(LazyVolume):
    """An array in memory that is read like a volume in a file."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        self.shape = array.shape
        self.dtype = array.dtype

    def read(self, starts: Any, stops: Any) -> np.ndarray:
        within = tuple(slice(start, stop) for start, stop in zip(starts, stops, strict=True))
        return np.array(self.array[(slice(None), *within)], order="C")


def test_lazy_labels_are_taken_and_refused_as_arrays_are() -> None:
    wide = WIDE[labels_of(3) + 1]
    soft = labels_of(3) + 0.5
    for seed in range(12):
        result = spatial()(segmentation=Held(wide), rng=rng(seed))
        expected = spatial()(segmentation=wide, rng=rng(seed))
        assert np.array_equal(result["segmentation"], expected["segmentation"])
        with pytest.raises(ValueError, match="whole numbers"):
            spatial()(segmentation=Held(soft), rng=rng(seed))


def joined(*transforms: Any) -> Compose:
    """Return a pipeline for three segmentations with names of their own."""
    keys = {"bones": "segmentation", "vessels": "segmentation", "score": "segmentation"}
    return Compose(list(transforms), keys=keys)


def test_labels_of_several_dtypes_are_joined_and_come_back_in_their_own() -> None:
    bones = labels_of(3, 1).astype(np.uint8)
    vessels = WIDE[labels_of(3, 2) + 1]
    score = torch.from_numpy(labels_of(3, 3).astype(np.float32))
    pipeline = joined(spatial(padding_value_seg=0), DownsampleSegForDS([1, 0.5]))
    alike = np.concatenate([bones, vessels, score.numpy().astype(np.int64)])
    for seed in range(8):
        result = pipeline(bones=bones, vessels=vessels, score=score, rng=rng(seed))
        expected = pipeline(bones=alike, rng=rng(seed))["bones"]
        levels = zip(result["bones"], result["vessels"], result["score"], strict=True)
        for parts, of_level in zip(levels, expected, strict=True):
            dtypes = [part.dtype for part in parts]
            assert dtypes == [np.uint8, np.int64, torch.float32]
            assert np.array_equal(np.concatenate(parts), of_level)


@pytest.mark.parametrize(
    "transform", [spatial(padding_value_seg=-1), CenterCrop((4, 4, 4), 0, -1), RemoveLabel(9, -1)]
)
def test_a_label_that_one_of_several_dtypes_does_not_hold_is_refused(transform: Any) -> None:
    pipeline = joined(transform)
    bones = LABELS.astype(np.uint8)
    for seed in range(6):
        with pytest.raises(
            ValueError, match=r"-1(\.0)?, which an array of dtype uint8 cannot hold"
        ):
            pipeline(vessels=LABELS, bones=bones, rng=rng(seed))


@pytest.mark.parametrize("other", [np.uint64, np.float64, np.float32])
def test_labels_that_the_joined_dtype_does_not_hold_are_refused(other: Any) -> None:
    large = np.array([2**53 + 1, 2**62 + 3, 7]).reshape(1, 1, 3).repeat(4, 1)
    small = np.array([1, 2, 3], other).reshape(1, 1, 3).repeat(4, 1)
    keys = {"large": "segmentation", "small": "segmentation"}
    renumber = Compose([RemoveLabel(2, 9)], keys=keys)
    with pytest.raises(ValueError, match=r"joined as float64.*labels of large \(int64\)"):
        renumber(large=large, small=small, rng=rng(1))
    result = renumber(large=large % 2**20, small=small, rng=rng(1))
    assert np.array_equal(result["large"], large % 2**20)
    assert np.array_equal(result["small"], np.where(small == 2, 9, small))
    assert result["large"].dtype == np.int64
    assert result["small"].dtype == other
