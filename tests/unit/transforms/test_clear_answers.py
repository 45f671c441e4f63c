"""What is wrong is said, in the same words on every path: params, paddings, limits, generators,
writes.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch

from detaug import DeterministicAugmenter
from detaug import transforms as t
from detaug.transforms import Transform
from tests.support.transforms.every_transform import EVERY
from tests.support.transforms.generators import rng
from tests.support.transforms.golden import sample

SHAPE = (18, 18, 14)


class Writes(Transform):
    def __init__(self, key: str) -> None:
        self.key = key

    def change(self, workspace: Any, params: Any) -> None:
        workspace.image(self.key)[...] = 0


class WritesAsItShould(Transform):
    def change(self, workspace: Any, params: Any) -> None:
        workspace.writable("image")[...] = 0
        workspace.image()[0] = 1  # owned by now


@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy])
@pytest.mark.parametrize("key", ["image", "segmentation"])
def test_what_is_not_owned_is_handed_out_read_only(key: str, kind: Any) -> None:
    given = {key: kind(array) for key, array in sample(1, SHAPE).items()}
    before = {key: np.array(array) for key, array in given.items()}
    with pytest.raises(ValueError, match="read-only"):
        Writes(key)(**given, rng=rng())
    made = WritesAsItShould()(**given, rng=rng())
    assert np.array_equal(np.unique(made["image"]), [0, 1])
    assert all(np.array_equal(given[key], before[key]) for key in given)


@pytest.mark.parametrize("dtype", [np.uint8, np.bool_])
@pytest.mark.parametrize("crop", [SHAPE, (8, 8, 8), (30, 30, 30)])
@pytest.mark.parametrize("turned", [0, 1])
@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
def test_a_padding_label_that_the_dtype_lacks_is_one_error_on_every_path(
    dtype: type, crop: tuple[int, ...], turned: int, mode: str
) -> None:
    labels = np.zeros((1, *SHAPE), dtype)
    spatial = t.SpatialTransform(
        crop,
        0,
        False,
        p_rotation=turned,
        border_mode_seg="constant",
        padding_value_seg=-1,
        mode_seg=mode,
    )
    for transform in (
        spatial,
        t.CenterCrop(crop, padding_value_seg=-1),
        t.RandomCrop(crop, padding_value_seg=-1),
    ):
        with pytest.raises(
            ValueError,
            match=r"padding value is -1.*, which an array of dtype .* cannot hold.*numpy.int16",
        ):
            transform(segmentation=labels, rng=rng())
    assert (
        spatial(segmentation=labels.astype(np.int16), rng=rng())["segmentation"].dtype == np.int16
    )


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        (5, r"SeedTree\(5\)\.generator.*default_rng\(5\)"),
        (torch.Generator(), r"Generator: pass .*SeedTree\(seed\)"),
        (np.random.RandomState(5), "SeedTree"),
        ("5", "SeedTree"),
    ],
)
def test_a_seed_or_another_librarys_generator_gets_a_hint(wrong: Any, hint: str) -> None:
    for arrays in (
        {"image": np.zeros((1, 8, 8), np.float32)},
        {"data": np.zeros((2, 1, 8, 8), np.float32)},
    ):
        with pytest.raises(TypeError, match=rf"numpy\.random\.Generator, got .*{hint}"):
            t.GaussianNoise(0.1)(**arrays, rng=wrong)


def from_global_state() -> float:
    return float(np.random.uniform(0.5, 2))


def test_a_callable_that_draws_from_numpys_global_state_is_said_to() -> None:
    image = sample(1, SHAPE)["image"]
    transform = t.Gamma(from_global_state, 0, False, 1, 0)
    with pytest.warns(
        UserWarning, match=r"from_global_state.* draws from numpy\.random.*called rng"
    ):
        transform(image=image, rng=rng())
    with pytest.warns(UserWarning, match=r"draws from numpy\.random"):
        t.Gamma(lambda: float(np.random.normal(1, 0.01)), 0, False, 1, 0)(image=image, rng=rng())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        t.Gamma(lambda rng: rng.uniform(0.5, 2), 0, False, 1, 0)(image=image, rng=rng())
        t.Gamma(lambda: 1.5, 0, False, 1, 0)(image=image, rng=rng())


def test_inside_an_augmenter_such_a_callable_is_seeded_and_nothing_is_said() -> None:
    def batches() -> list[np.ndarray]:
        data = [{"data": np.ones((1, 2, 8, 8), np.float32).cumsum(axis=-1)} for _ in range(2)]
        with DeterministicAugmenter(
            data, t.Gamma(from_global_state, 0, False, 1, 0), 0, seed=5
        ) as augmenter:
            return [np.array(batch["data"]) for batch in augmenter]

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first, second = batches(), batches()
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))
    assert not np.array_equal(first[0], first[1])


@pytest.mark.parametrize(
    "dtype", [object, complex, "U1", "datetime64[s]", [("a", "i4")], np.longdouble]
)
def test_labels_that_are_no_numbers_are_an_error(dtype: Any) -> None:
    labels = np.zeros((2, *SHAPE), dtype)
    with pytest.raises(
        TypeError, match=r"segmentation must hold integers.*got dtype .*astype\(numpy\.int16\)"
    ):
        t.Mirror((0,))(image=sample(1, SHAPE)["image"], segmentation=labels, rng=rng())


def test_a_gradient_that_gets_lost_is_said() -> None:
    given = sample(1, SHAPE)["image"]
    with pytest.warns(UserWarning, match=r"image requires a gradient.*image\.detach\(\)"):
        made = t.Mirror((0,))(image=torch.from_numpy(given).requires_grad_(), rng=rng())["image"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(made, t.Mirror((0,))(image=torch.from_numpy(given), rng=rng())["image"])


def masked(array: np.ndarray) -> Any:
    return np.ma.masked_greater(array, 0.5)


@pytest.mark.parametrize("key", ["image", "segmentation", "regression_target"])
@pytest.mark.parametrize("name", [*EVERY, "RandomApply, never"])
def test_a_masked_array_is_one_error_for_every_transform(name: str, key: str) -> None:
    transform = EVERY[name](3) if name in EVERY else t.RandomApply(t.InvertImage(1), 0)
    sample = {
        "image": np.random.default_rng(2).random((2, 8, 8, 8), dtype=np.float32),
        "segmentation": np.ones((2, 8, 8, 8), np.int8),
    }
    sample[key] = masked(sample.get(key, sample["image"]))
    with pytest.raises(TypeError, match=rf"^{key} is a numpy\.ma\.MaskedArray, .*{key}\.filled"):
        transform(**sample, rng=rng())


def test_a_masked_array_in_a_batch_or_out_of_a_foreign_transform_is_that_error() -> None:
    images = np.random.default_rng(3).random((3, 1, 6, 6), dtype=np.float32)
    for batch in (masked(images), [images[0], masked(images[1])]):
        with pytest.raises(TypeError, match=r"^image is a numpy\.ma\.MaskedArray"):
            t.Mirror((0, 1))(data=batch, rng=rng())

    def hides(image: torch.Tensor) -> dict[str, Any]:
        return {"image": masked(image.numpy())}

    with pytest.raises(TypeError, match=r"^image of .*hides is a numpy\.ma\.MaskedArray"):
        t.ForeignTransform(hides)(image=images[0], rng=rng())
