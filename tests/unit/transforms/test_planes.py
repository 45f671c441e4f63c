"""Volumes as stacks of planes and back."""

import numpy as np
import pytest
import torch

from detaug.transforms.axes import Mirror
from detaug.transforms.compose import Compose
from detaug.transforms.planes import Convert2DTo3D, Convert3DTo2D

RNG = np.random.default_rng(0)


def sample():
    rng = np.random.default_rng(1)
    return {
        "image": torch.from_numpy(rng.standard_normal((2, 4, 5, 6)).astype(np.float32)),
        "segmentation": torch.from_numpy(rng.integers(0, 4, (1, 4, 5, 6))).to(torch.int16),
        "regression_target": torch.from_numpy(rng.standard_normal((3, 4, 5, 6)).astype(np.float32)),
    }


def test_planes_and_counts_are_those_of_batchgeneratorsv2():
    module = pytest.importorskip("batchgeneratorsv2.transforms.utils.pseudo2d")
    result, expected = Convert3DTo2D()(**sample(), rng=RNG), module.Convert3DTo2DTransform()(**sample())
    assert result.keys() == expected.keys()
    for key, value in expected.items():
        assert torch.equal(result[key], value) if isinstance(value, torch.Tensor) else result[key] == value
    back = Convert2DTo3D()(**expected, rng=RNG)
    assert back.keys() == sample().keys()
    assert all(torch.equal(back[key], value) for key, value in sample().items())


def test_there_and_back_copies_nothing():
    given = {key: value.numpy() for key, value in sample().items()}
    result = Compose([Convert3DTo2D(), Convert2DTo3D()])(**given, rng=RNG)
    for key, value in given.items():
        np.testing.assert_array_equal(result[key], value)
        assert np.shares_memory(result[key], value)


def test_points_go_with_their_plane_and_keep_their_first_coordinate():
    image = np.zeros((1, 5, 6, 7), np.float32)
    image[0, 1, 2, 3] = 1
    there_and_back = Compose([Convert3DTo2D(), Mirror((0, 1)), Convert2DTo3D()])
    params = {"transforms": [{}, {"axes": [0, 1]}, {"nchannels_img": 1}]}
    keypoints, boxes = np.array([[1, 2, 3]]), np.array([[0.5, 1.5, 2.5, 1.5, 2.5, 3.5]])
    result = there_and_back.apply({"image": image, "keypoints": keypoints, "bbox": boxes}, params)
    voxel = np.argwhere(result["image"][0])
    np.testing.assert_array_equal(result["keypoints"], voxel)
    np.testing.assert_array_equal(result["bbox"], np.concatenate((voxel - 0.5, voxel + 0.5), axis=1))
    assert set(result) == {"image", "keypoints", "bbox"}


def test_shapes_are_told_ahead():
    shapes = {"image": (2, 4, 5, 6), "keypoints": (3, 3), "bbox": (2, 6)}
    flat = Convert3DTo2D().output_shapes(shapes, {})
    arrays = {"image": np.zeros((2, 4, 5, 6), np.float32), "keypoints": np.zeros((3, 3)), "bbox": np.zeros((2, 6))}
    result = Convert3DTo2D()(**arrays, rng=RNG)
    assert flat == {key: getattr(value, "shape", value) for key, value in result.items()}
    assert Convert2DTo3D().output_shapes(flat, Convert2DTo3D().sample(RNG, flat)) == shapes
