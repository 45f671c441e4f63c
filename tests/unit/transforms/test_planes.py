"""Volumes as stacks of planes and back."""

import numpy as np
import pytest
import torch

from detaug import fingerprint
from detaug.transforms.compose import Compose
from detaug.transforms.planes import Convert2DTo3D, Convert3DTo2D
from tests.support.transforms.generators import noise
from tests.support.transforms.golden import sample

RNG = np.random.default_rng(0)


def tensors():
    given = {**sample(1, (4, 5, 6)), "regression_target": noise((3, 4, 5, 6))}
    return {key: torch.from_numpy(array) for key, array in given.items()}


def test_planes_and_counts_are_those_of_batchgeneratorsv2():
    module = pytest.importorskip("batchgeneratorsv2.transforms.utils.pseudo2d")
    expected = module.Convert3DTo2DTransform()(**tensors())
    assert fingerprint(Convert3DTo2D()(**tensors(), rng=RNG)) == fingerprint(expected)
    assert fingerprint(Convert2DTo3D()(**expected, rng=RNG)) == fingerprint(tensors())


def test_there_and_back_copies_nothing():
    given = sample(1, (4, 5, 6))
    result = Compose([Convert3DTo2D(), Convert2DTo3D()])(**given, rng=RNG)
    for key, value in given.items():
        np.testing.assert_array_equal(result[key], value)
        assert np.shares_memory(result[key], value)
