"""Random binary operators on one-hot channels."""

import numpy as np
import pytest
import torch

from detaug.transforms.binary_operators import OPERATORS, ApplyRandomBinaryOperator

RADII = [0, 0.2, 0.5, 0.9, 1, 1.2, 1.5, 1.7, 2, 2.5, 3, 5, 7, 8, 10]


def one_hot(shape, seed=0, density=0.3):
    return (np.random.default_rng(seed).random(shape) < density).astype(np.float32)


def test_results_are_those_of_batchgeneratorsv2():
    module = pytest.importorskip("batchgeneratorsv2.transforms.nnunet.random_binary_operator")
    rng = np.random.default_rng(2)
    for seed in range(60):
        dims = int(rng.integers(2, 4))
        shape = rng.integers(1, 16, dims) if seed % 3 else rng.integers(50, 140, 2)
        image = one_hot((3, *shape), seed, rng.choice([0.01, 0.1, 0.5, 0.9])) * (
            0.5 if seed % 4 == 0 else 1
        )
        image = image.astype(np.float32)
        applied = [-1, -3][: int(rng.integers(1, 3))]
        operators = [str(rng.choice(OPERATORS)) for _ in applied]
        radii = rng.choice([*RADII, *rng.uniform(1, 10, 5)], len(applied)).tolist()
        params = {"apply_to_channels": applied, "strel_size": radii}
        result = ApplyRandomBinaryOperator([-3, -1]).apply(
            {"image": image}, {**params, "operators": operators}
        )
        theirs = module.ApplyRandomBinaryOperatorTransform([-3, -1])
        functions = [getattr(module, f"binary_{name}_torch") for name in operators]
        expected = theirs._apply_to_image(
            torch.from_numpy(image.copy()), **params, operators=functions
        )
        np.testing.assert_array_equal(result["image"], expected.numpy())


def test_batchgeneratorsv2s_functions_are_understood_by_name():
    module = pytest.importorskip("batchgeneratorsv2.transforms.nnunet.random_binary_operator")
    functions = (module.binary_closing_torch, module.binary_erosion_torch)
    assert ApplyRandomBinaryOperator(0, functions).any_of_these == ["closing", "erosion"]


def test_a_callable_radius_gets_the_channel_and_the_image():
    def radius(image, channel):
        return float(image[channel].max()) + 1

    image = one_hot((2, 7, 7), density=0.1)
    direct = {"apply_to_channels": [1], "operators": ["dilation"], "strel_size": [2.0]}
    result = ApplyRandomBinaryOperator([1], ("dilation",), radius)(
        image=image, rng=np.random.default_rng(0)
    )["image"]
    np.testing.assert_array_equal(
        result, ApplyRandomBinaryOperator([1]).apply({"image": image}, direct)["image"]
    )
