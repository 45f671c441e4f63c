"""Labels of every dtype and size go through `SpatialTransform`; other numbers are refused, whatever
was drawn.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from detaug import SeedTree
from detaug.transforms import CenterCrop, Compose, DownsampleSegForDS, RemoveLabel, SpatialTransform
from detaug.transforms.building.workspace import LazyVolume

SHAPES = {3: (20, 17, 19), 2: (33, 30)}


def spatial(dims: int = 3, **arguments: Any) -> SpatialTransform:
    """Return a transform that resamples about every second sample, with all that can be drawn."""
    usual: dict[str, Any] = {
        "p_rotation": 0.3,
        "rotation": (-0.8, 0.8),
        "p_scaling": 0.2,
        "p_elastic_deform": 0.1,
        "padding_value_seg": -1,
        "border_mode_seg": "constant",
    }
    return SpatialTransform((16, 18, 14)[:dims], 5, True, **{**usual, **arguments})


def labels_of(dims: int, seed: int = 0) -> np.ndarray:
    """Return blocks of labels 0 to 6, two channels, int16."""
    rng = np.random.default_rng(seed)
    space = SHAPES[dims]
    blocks = rng.integers(0, 7, (2, *(n // 3 + 1 for n in space)), np.int16)
    for axis, n in enumerate(space, 1):
        blocks = blocks.repeat(3, axis).take(range(n), axis)
    return blocks


# In rising order, as the codes that they stand for: of labels of equal weight the lowest one wins.
WIDE = np.array([-1, 0, 40_000, 40_001, 120_000, 2**24 + 1, 2**30, 2**31 - 1])


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint32, np.uint64, np.float64])
@pytest.mark.parametrize("mode_seg", ["bilinear", "nearest"])
@pytest.mark.parametrize("dims", [3, 2])
def test_wide_labels_come_out_where_small_ones_do(dtype: Any, mode_seg: str, dims: int) -> None:
    signed = np.dtype(dtype).kind != "u"
    padding = -1 if signed else 0
    transform = spatial(dims, mode_seg=mode_seg, padding_value_seg=padding)
    small = labels_of(dims)
    wide = WIDE[small + 1].astype(dtype)
    for seed in range(15):
        rng = SeedTree(seed).generator(0)
        params = transform.sample(rng, {"segmentation": small.shape})
        expected = transform.apply({"segmentation": small}, params)["segmentation"]
        result = transform.apply({"segmentation": wide}, params)["segmentation"]
        assert result.dtype == dtype
        assert np.array_equal(result, WIDE[expected + 1].astype(dtype))


def test_a_padding_that_int16_does_not_hold_is_resampled_too() -> None:
    transform = spatial(padding_value_seg=70_000, p_scaling=1, scaling=(2, 2.5))
    small = labels_of(3)
    result = transform(segmentation=small.astype(np.int32), rng=SeedTree(1).generator(0))
    assert 70_000 in result["segmentation"]
    assert set(np.unique(result["segmentation"])) <= {*range(7), 70_000}


REFUSED = {
    "soft labels": (lambda labels: labels.astype(np.float32) + np.float32(0.25), r"has \d\.25\b"),
    "NaN": (lambda labels: np.where(labels == 6, np.nan, labels), "has nan"),
    "infinity": (lambda labels: np.where(labels == 6, np.inf, labels), "to inf"),
    "large labels": (lambda labels: labels.astype(np.int64) + 2**31, "2147483648 to 2147483654"),
    "large floats": (lambda labels: labels.astype(np.float64) * 1e9, "to 6000000000"),
}


@pytest.mark.parametrize("kind", REFUSED)
@pytest.mark.parametrize("as_tensor", [False, True])
def test_what_is_no_label_is_refused_whatever_is_drawn(kind: str, as_tensor: bool) -> None:
    change, message = REFUSED[kind]
    given: Any = change(labels_of(3))
    if as_tensor:
        given = torch.from_numpy(given)
    for seed in range(12):
        with pytest.raises(ValueError, match=message):
            spatial()(segmentation=given, rng=SeedTree(seed).generator(0))


class Held(LazyVolume):
    """An array in memory, read as a volume in a file would be."""

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
        rng, other = SeedTree(seed).generator(0), SeedTree(seed).generator(0)
        result = spatial()(segmentation=Held(wide), rng=rng)["segmentation"]
        assert np.array_equal(result, spatial()(segmentation=wide, rng=other)["segmentation"])
        with pytest.raises(ValueError, match="whole numbers"):
            spatial()(segmentation=Held(soft), rng=rng)


def joined(*transforms: Any) -> Compose:
    keys = {"bones": "segmentation", "vessels": "segmentation", "score": "segmentation"}
    return Compose(list(transforms), keys=keys)


def test_labels_of_several_dtypes_are_joined_and_come_back_in_their_own() -> None:
    bones = labels_of(3, 1).astype(np.uint8)
    vessels = WIDE[labels_of(3, 2) + 1]
    score = torch.from_numpy(labels_of(3, 3).astype(np.float32))
    pipeline = joined(spatial(padding_value_seg=0), DownsampleSegForDS([1, 0.5]))
    for seed in range(8):
        rng, other = SeedTree(seed).generator(0), SeedTree(seed).generator(0)
        result = pipeline(bones=bones, vessels=vessels, score=score, rng=rng)
        alike = np.concatenate([bones, vessels, score.numpy().astype(np.int64)])
        expected = pipeline(bones=alike, rng=other)["bones"]
        for level in range(2):
            assert result["bones"][level].dtype == np.uint8
            assert result["vessels"][level].dtype == np.int64
            assert result["score"][level].dtype == torch.float32
            parts = [result[name][level] for name in ("bones", "vessels", "score")]
            assert np.array_equal(np.concatenate(parts), expected[level])


@pytest.mark.parametrize(
    "transform", [spatial(padding_value_seg=-1), CenterCrop((4, 4, 4), 0, -1), RemoveLabel(9, -1)]
)
def test_a_label_that_one_of_several_dtypes_does_not_hold_is_refused(transform: Any) -> None:
    small = labels_of(3)
    for seed in range(6):
        with pytest.raises(
            ValueError, match=r"-1(\.0)?, which an array of dtype uint8 cannot hold"
        ):
            joined(transform)(
                vessels=small, bones=small.astype(np.uint8), rng=SeedTree(seed).generator(0)
            )
