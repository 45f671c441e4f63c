"""Median filter and sharpening: exact values, and agreement with SciPy and batchgeneratorsv2."""

import numpy as np
import pytest
import torch
from scipy import ndimage

from detaug.kernels.median import median_filter
from detaug.transforms.filters import MedianFilter, Sharpening
from tests.support.transforms.errors import largest_error, root_mean_square_error
from tests.support.transforms.generators import generator, noise

SHAPES = (
    (1, 9, 12, 17),
    (3, 8, 5, 33),
    (2, 21, 19),
    (1, 3, 2, 4),
    (1, 1, 9, 12),
    (2, 7, 1, 5),
    (1, 6, 1),
    (1, 1, 1, 4),
)


def scipys_median(image, size):
    return np.stack([ndimage.median_filter(channel, size=size) for channel in image])


@pytest.mark.parametrize("size", [2, 3, 4, 5, 6, 7, 9])
@pytest.mark.parametrize("shape", SHAPES)
def test_medians_are_exactly_scipys(size, shape):
    transform = MedianFilter(size)
    image = noise(shape)
    with_ties = np.round(image * 2)
    for values in (image, with_ties):
        result = transform(image=values, rng=generator())["image"]
        np.testing.assert_array_equal(result, scipys_median(values, size))


def exactly_sharpened(channel, strength, is_clamped):
    exact = channel.astype(np.float64)
    sharp = exact.copy()
    for axis in range(exact.ndim):
        sharp += strength * ndimage.correlate1d(exact, [-1, 2, -1], axis, mode="nearest")
    if not is_clamped:
        return sharp
    return np.clip(sharp, exact.min(), exact.max())


def exactly(image, params):
    channels = []
    for c, channel in enumerate(image):
        if params["apply_channel"][c]:
            is_clamped = params["clamp_intensities"][c]
            channel = exactly_sharpened(channel, params["strengths"][c], is_clamped)
        channels.append(channel)
    return np.stack(channels)


@pytest.mark.parametrize("shape", SHAPES)
def test_sharpening_is_the_formula_in_float64_next_to_batchgeneratorsv2s_and_errs_no_more(shape):
    module = pytest.importorskip("batchgeneratorsv2.transforms.noise.sharpen")
    transform = Sharpening((0.1, 2.0), p_per_channel=0.7, p_clamp_intensities=0.3)
    for seed in range(10):
        image = noise(shape, seed)
        params = transform.sample(generator(seed), {"image": shape})
        result = transform.apply({"image": image}, params)["image"]
        exact = exactly(image, params)
        assert largest_error(result, exact) <= 1e-6 * (1 + max(params["strengths"]))
        if 1 in shape[1:]:
            # batchgeneratorsv2's transform raises an error for such shapes.
            continue
        tensor = torch.from_numpy(image.copy())
        other = module.SharpeningTransform()._apply_to_image(tensor, **params).numpy()
        assert largest_error(result, other) < 1e-5
        assert root_mean_square_error(result, exact) <= root_mean_square_error(other, exact)


def middle_of_sorted_boxes(values: np.ndarray, box: tuple[int, int, int]) -> np.ndarray:
    """Return the median of the box around each voxel, with -0 sorted before 0, and NaN last."""
    # Integers that have the order of the numbers' bits.
    bits = values.view(np.int32).astype(np.int64)
    keys = np.where(bits < 0, -(2**31) - 1 - bits, bits)
    padded = np.pad(keys, [(n // 2, n - 1 - n // 2) for n in box], "symmetric")
    boxes = np.lib.stride_tricks.sliding_window_view(padded, box).reshape(*values.shape, -1)
    middle = np.sort(boxes, axis=-1)[..., boxes.shape[-1] // 2]
    return np.where(middle < 0, -(2**31) - 1 - middle, middle).astype(np.int32).view(np.float32)


@pytest.mark.parametrize(
    "box",
    [
        (2, 2, 2),
        (3, 3, 3),
        (4, 4, 4),
        (5, 5, 5),
        (6, 6, 6),
        (7, 7, 7),
        (1, 5, 5),
        (1, 1, 6),
        (3, 1, 2),
        (1, 15, 15),
    ],
)
def test_medians_are_those_of_sorted_boxes_to_the_bit(box: tuple[int, int, int]) -> None:
    rng = np.random.default_rng(sum(box))
    for shape in ((1, 1, 1), (2, 9, 3), (9, 2, 70), (3, 1, 600)):
        values = rng.integers(-3, 4, shape).astype(np.float32) / np.float32(3)
        values[rng.random(shape) < 0.1] = np.nan
        values[rng.random(shape) < 0.1] = np.float32(-0.0)
        values[rng.random(shape) < 0.1] = np.inf
        image = values.copy()
        median_filter(image, box, image)
        assert image.tobytes() == middle_of_sorted_boxes(values, box).tobytes()
