"""Removed labels, regions of labels, and the smaller copies of deep supervision."""

import numpy as np
import pytest
import torch

from detaug.transforms.labels import (
    ConvertSegmentationToRegions,
    DownsampleSegForDS,
    RemoveLabel,
    nearest,
)

RNG = np.random.default_rng(0)


def test_smaller_copies_take_the_voxels_that_torch_takes():
    for length in range(1, 70):
        for size in range(1, length + 1):
            axis = torch.arange(length, dtype=torch.float32)[None, None, None]
            expected = torch.nn.functional.interpolate(axis, (1, size), mode="nearest-exact")
            np.testing.assert_array_equal(nearest(length, size), expected[0, 0, 0].numpy())


def test_the_copy_at_scale_one_is_the_segmentation_itself():
    labels = np.arange(36, dtype=np.int16).reshape(1, 6, 6)
    result = DownsampleSegForDS([1, 0.5])(segmentation=labels, rng=RNG)["segmentation"]
    assert result[0] is labels
    assert result[1].shape == (1, 3, 3)


def test_labels_beyond_float32_are_kept_exactly():
    labels = np.full((1, 4, 4), 2**24 + 1, np.int64)
    (smaller,) = DownsampleSegForDS([0.5])(segmentation=labels, rng=RNG)["segmentation"]
    assert (smaller == 2**24 + 1).all()


def test_a_label_that_the_dtype_cannot_hold_is_nowhere():
    labels = np.full((1, 4, 4), 255, np.uint8)
    assert RemoveLabel(-1, 0)(segmentation=labels, rng=RNG)["segmentation"] is labels
    to_regions = ConvertSegmentationToRegions([(-1, 256), []])
    assert not to_regions(segmentation=labels, rng=RNG)["segmentation"].any()
    with pytest.raises(ValueError, match="set_to is -1"):
        RemoveLabel(0, -1)(segmentation=labels, rng=RNG)


def test_boolean_segmentations_work():
    labels = np.array([[[True, False]]])
    result = RemoveLabel(1, 0)(segmentation=labels, rng=RNG)["segmentation"]
    np.testing.assert_array_equal(result, [[[False, False]]])
