"""Volumes as stacks of planes and back."""

import numpy as np
import pytest
import torch

from detaug import fingerprint
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
    expected = module.Convert3DTo2DTransform()(**sample())
    assert fingerprint(Convert3DTo2D()(**sample(), rng=RNG)) == fingerprint(expected)
    assert fingerprint(Convert2DTo3D()(**expected, rng=RNG)) == fingerprint(sample())


def test_there_and_back_copies_nothing():
    given = {key: value.numpy() for key, value in sample().items()}
    result = Compose([Convert3DTo2D(), Convert2DTo3D()])(**given, rng=RNG)
    for key, value in given.items():
        np.testing.assert_array_equal(result[key], value)
        assert np.shares_memory(result[key], value)
