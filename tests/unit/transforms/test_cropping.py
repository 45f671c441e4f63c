"""Crops, with padding beyond the array's end."""

import numpy as np
import torch

from detaug.transforms.cropping import CenterCrop


def by_index(array, center, size, value):
    """Return the crop by its definition, one axis after another."""
    for axis, (middle, extent) in enumerate(zip(center, size, strict=True), start=1):
        length = array.shape[axis]
        first = middle - extent // 2
        indices = np.arange(first, first + extent)
        is_outside = (indices < 0) | (indices >= length)
        array = np.take(array, np.clip(indices, 0, length - 1), axis=axis)
        earlier_axes = (slice(None),) * axis
        array[(*earlier_axes, is_outside)] = value
    return array


def random_case(seed):
    """Return an array of 2-D or 3-D channels, and a crop's center and size."""
    rng = np.random.default_rng(seed)
    dims = int(rng.integers(2, 4))
    num_channels = int(rng.integers(1, 3))
    shape = (num_channels, *rng.integers(1, 9, dims))
    array = rng.integers(-9, 9, shape).astype(np.int16)
    if rng.random() < 0.3:
        array = array[:, ::-1]
    center = rng.integers(-12, 20, dims).tolist()
    size = rng.integers(1, 14, dims).tolist()
    return array, center, size


def test_every_voxel_is_the_one_at_its_place_or_the_padding_value():
    for seed in range(150):
        array, center, size = random_case(seed)
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
    image = torch.zeros(1, 4, 4)
    labels = torch.zeros(1, 4, 4, dtype=torch.int16)
    sample = {"image": image, "segmentation": labels, "regression_target": image}
    result = crop(**sample, rng=np.random.default_rng(0))
    corners = {key: array[0, 0, 0].item() for key, array in result.items()}
    assert corners == {"image": 7, "segmentation": -1, "regression_target": 7}
    assert result["segmentation"].dtype == torch.int16
