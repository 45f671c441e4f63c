"""Removing labels, joining them to regions, masking by them, deep supervision's smaller copies."""

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
            expected = torch.nn.functional.interpolate(axis, (1, size), mode="nearest-exact")[
                0, 0, 0
            ]
            np.testing.assert_array_equal(nearest(length, size), expected.numpy())


def test_the_copy_at_scale_one_is_the_segmentation_itself():
    given = np.arange(36, dtype=np.int16).reshape(1, 6, 6)
    result = DownsampleSegForDS([1, 0.5])(segmentation=given, rng=RNG)["segmentation"]
    assert result[0] is given
    assert result[1].shape == (1, 3, 3)


def test_labels_beyond_float32_are_kept_exactly():
    given = np.full((1, 4, 4), 2**24 + 1, np.int64)
    assert (
        DownsampleSegForDS([0.5])(segmentation=given, rng=RNG)["segmentation"][0] == 2**24 + 1
    ).all()


def test_a_label_that_the_dtype_cannot_hold_is_nowhere():
    given = np.full((1, 4, 4), 255, np.uint8)
    assert RemoveLabel(-1, 0)(segmentation=given, rng=RNG)["segmentation"] is given
    assert not ConvertSegmentationToRegions([(-1, 256), []])(segmentation=given, rng=RNG)[
        "segmentation"
    ].any()
    with pytest.raises(ValueError, match="set_to is -1"):
        RemoveLabel(0, -1)(segmentation=given, rng=RNG)


def test_boolean_segmentations_work():
    seg = np.array([[[True, False]]])
    np.testing.assert_array_equal(
        RemoveLabel(1, 0)(segmentation=seg, rng=RNG)["segmentation"], [[[False, False]]]
    )
