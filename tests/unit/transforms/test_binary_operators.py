"""Random binary operators on one-hot channels."""

import numpy as np
import pytest

from detaug.transforms.binary_operators import ApplyRandomBinaryOperator


def one_hot(shape, seed=0, density=0.3):
    return (np.random.default_rng(seed).random(shape) < density).astype(np.float32)


def test_batchgeneratorsv2s_functions_are_understood_by_name():
    module = pytest.importorskip("batchgeneratorsv2.transforms.nnunet.random_binary_operator")
    functions = (module.binary_closing_torch, module.binary_erosion_torch)
    assert ApplyRandomBinaryOperator(0, functions).any_of_these == ["closing", "erosion"]


def test_a_callable_radius_gets_the_channel_and_the_image():
    def radius(image, channel):
        return float(image[channel].max()) + 1

    image = one_hot((2, 7, 7), density=0.1)
    transform = ApplyRandomBinaryOperator([1], ("dilation",), radius)
    result = transform(image=image, rng=np.random.default_rng(0))["image"]
    params = {"apply_to_channels": [1], "operators": ["dilation"], "strel_size": [2.0]}
    expected = ApplyRandomBinaryOperator([1]).apply({"image": image}, params)["image"]
    np.testing.assert_array_equal(result, expected)
