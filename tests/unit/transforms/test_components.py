"""Removal of random connected components."""

import numpy as np
import pytest

from detaug.transforms.components import (
    RemoveRandomConnectedComponentFromOneHotEncoding,
    find_components,
)


def blobs():
    """A channel with components of 8, 1 and 3 voxels (the last touching at corners), and an empty
    one.
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
        shape = rng.integers(1, 20, dims) if seed % 3 else rng.integers(50, 140, 2)
        channel = (rng.random(shape) < rng.choice([0, 0.02, 0.1, 0.3, 0.6, 1])).astype(np.float32)
        expected = measure.label(channel.astype(bool))
        components, sizes = find_components(channel)
        assert sizes == np.bincount(expected.ravel())[1:].tolist()
        np.testing.assert_array_equal(components, expected)


def test_a_component_goes_whole_and_each_as_often_as_the_others():
    transform, rng, image = (
        RemoveRandomConnectedComponentFromOneHotEncoding(0, 0),
        np.random.default_rng(1),
        blobs(),
    )
    removed = []
    for _ in range(900):
        result = transform(image=image, rng=rng)["image"]
        removed.append(int((image - result).sum()))
        assert not result[1:].any()
    assert sorted(set(removed)) == [1, 3, 8]
    assert max(abs(removed.count(size) - 300) for size in (1, 3, 8)) < 75
    np.testing.assert_array_equal(image, blobs())


def test_large_components_stay():
    transform = RemoveRandomConnectedComponentFromOneHotEncoding(
        0, 0, dont_do_if_covers_more_than_x_percent=3 / 216
    )
    rng = np.random.default_rng(2)
    assert {
        int((blobs() - transform(image=blobs(), rng=rng)["image"]).sum()) for _ in range(30)
    } == {1}


def test_another_channel_gets_the_component_as_often_as_asked():
    transform = RemoveRandomConnectedComponentFromOneHotEncoding([-3, -1], 0.25)
    results = [
        transform.apply({"image": blobs()}, {"apply_to_channels": [-3], "key": key})["image"]
        for key in range(1200)
    ]
    filled = [r for r in results if r[2].any()]
    assert abs(len(filled) - 300) < 60
    assert all((r[2] == blobs()[0] - r[0]).all() for r in filled)
    assert not any(r[1].any() for r in results)
