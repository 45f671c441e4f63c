"""Removal of random connected components."""

import numpy as np
import pytest

from detaug.transforms.components import (
    RemoveRandomConnectedComponentFromOneHotEncoding,
    find_components,
)


def blobs():
    """Return an image (3, 6, 6, 6) with components in channel 0 alone.

    They have 8, 1 and 3 voxels; those of the last one touch each other at corners.
    """
    image = np.zeros((3, 6, 6, 6), np.float32)
    image[0, :2, :2, :2] = 1
    image[0, 0, 5, 5] = 1
    for i in (3, 4, 5):
        image[0, i, i, i] = 1
    return image


def test_components_and_their_order_are_those_of_scikit_image():
    measure = pytest.importorskip("skimage.measure")
    rng = np.random.default_rng(0)
    for seed in range(120):
        dims = int(rng.integers(2, 4))
        if seed % 3:
            shape = rng.integers(1, 20, dims)
        else:
            shape = rng.integers(50, 140, 2)
        is_set = rng.random(shape) < rng.choice([0, 0.02, 0.1, 0.3, 0.6, 1])
        channel = is_set.astype(np.float32)
        expected = measure.label(channel.astype(bool))
        components, sizes = find_components(channel)
        assert sizes == np.bincount(expected.ravel())[1:].tolist()
        np.testing.assert_array_equal(components, expected)


def test_a_component_goes_whole_and_each_as_often_as_the_others():
    transform = RemoveRandomConnectedComponentFromOneHotEncoding(0, 0)
    rng = np.random.default_rng(1)
    image = blobs()
    sizes_removed = []
    for _ in range(900):
        result = transform(image=image, rng=rng)["image"]
        sizes_removed.append(int((image - result).sum()))
        assert not result[1:].any()
    assert set(sizes_removed) == {1, 3, 8}
    for size in (1, 3, 8):
        assert abs(sizes_removed.count(size) - 300) < 75
    np.testing.assert_array_equal(image, blobs())


def test_large_components_stay():
    transform = RemoveRandomConnectedComponentFromOneHotEncoding(
        0, 0, dont_do_if_covers_more_than_x_percent=3 / 216
    )
    rng = np.random.default_rng(2)
    for _ in range(30):
        result = transform(image=blobs(), rng=rng)["image"]
        assert int((blobs() - result).sum()) == 1


def test_another_channel_gets_the_component_as_often_as_asked():
    transform = RemoveRandomConnectedComponentFromOneHotEncoding([-3, -1], 0.25)
    num_filled = 0
    for key in range(1200):
        params = {"apply_to_channels": [-3], "key": key}
        result = transform.apply({"image": blobs()}, params)["image"]
        assert not result[1].any()
        if result[2].any():
            num_filled += 1
            assert (result[2] == blobs()[0] - result[0]).all()
    assert abs(num_filled - 300) < 60
