"""Crops, with padding beyond the array's end."""

import numpy as np
import torch

from detaug.transforms.cropping import CenterCrop


def by_index(array, center, size, value):
    """Return the crop by its definition, one axis after another."""
    for axis, (c, n) in enumerate(zip(center, size, strict=True), start=1):
        length = array.shape[axis]
        wanted = np.arange(c - n // 2, c - n // 2 + n)
        array = np.take(array, np.clip(wanted, 0, length - 1), axis=axis)
        outside = (wanted < 0) | (wanted >= length)
        array[(slice(None),) * axis + (outside,)] = value
    return array


def test_every_voxel_is_the_one_at_its_place_or_the_padding_value():
    rng = np.random.default_rng(1)
    for _ in range(150):
        dims = int(rng.integers(2, 4))
        array = rng.integers(-9, 9, (int(rng.integers(1, 3)), *rng.integers(1, 9, dims))).astype(
            np.int16
        )
        array = array[:, ::-1] if rng.random() < 0.3 else array
        center, size = rng.integers(-12, 20, dims).tolist(), rng.integers(1, 14, dims).tolist()
        crop = CenterCrop(size, padding_value_seg=-1)
        result = crop.apply({"segmentation": array}, {"center": center})["segmentation"]
        np.testing.assert_array_equal(result, by_index(array, center, size, -1))
        assert result.dtype == array.dtype


def test_center_crop_takes_the_middle_without_a_copy():
    image = np.arange(7 * 8 * 9, dtype=np.float32).reshape(1, 7, 8, 9)
    result = CenterCrop((3, 4, 5))(image=image, rng=np.random.default_rng(0))["image"]
    np.testing.assert_array_equal(result, image[:, 2:5, 2:6, 2:7])
    assert np.shares_memory(result, image)


def test_segmentation_and_image_have_padding_values_of_their_own():
    crop = CenterCrop((6, 6), padding_value_image=7, padding_value_seg=-1)
    image, labels = torch.zeros(1, 4, 4), torch.zeros(1, 4, 4, dtype=torch.int16)
    result = crop(
        image=image, segmentation=labels, regression_target=image, rng=np.random.default_rng(0)
    )
    assert [
        result[key][0, 0, 0].item() for key in ("image", "regression_target", "segmentation")
    ] == [7, 7, -1]
    assert result["segmentation"].dtype == torch.int16
