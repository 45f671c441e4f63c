"""Wrong use is reported with the same words on every path: paddings, generators, dtypes, writes."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from detaug import DeterministicAugmenter, fingerprint
from detaug import transforms as t
from detaug.transforms import Transform
from tests.support.transforms.every_transform import EVERY
from tests.support.transforms.generators import rng
from tests.support.transforms.golden import sample

SHAPE = (18, 18, 14)


class Writes(Transform):
    """A transform that writes into an array that it does not own."""

    def __init__(self, key: str) -> None:
        self.key = key

    def change(self, workspace: Any, params: Any) -> None:
        workspace.image(self.key)[...] = 0


class WritesAsItShould(Transform):
    """A transform that asks for a writable array first."""

    def change(self, workspace: Any, params: Any) -> None:
        workspace.writable("image")[...] = 0
        # Since then the transform owns the array.
        workspace.image()[0] = 1


@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy])
@pytest.mark.parametrize("key", ["image", "segmentation"])
def test_what_is_not_owned_is_handed_out_read_only(key: str, kind: Any) -> None:
    arrays = {name: kind(array) for name, array in sample(1, SHAPE).items()}
    fingerprint_before = fingerprint(arrays)
    with pytest.raises(ValueError, match="read-only"):
        Writes(key)(**arrays, rng=rng())
    result = WritesAsItShould()(**arrays, rng=rng())
    assert np.array_equal(np.unique(result["image"]), [0, 1])
    assert fingerprint(arrays) == fingerprint_before


CANNOT_HOLD = r"padding value is -1.*, which an array of dtype .* cannot hold.*numpy.int16"
CROPS = [SHAPE, (8, 8, 8), (30, 30, 30)]


@pytest.mark.parametrize("dtype", [np.uint8, np.bool_])
@pytest.mark.parametrize("crop", CROPS)
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
    with pytest.raises(ValueError, match=CANNOT_HOLD):
        spatial(segmentation=labels, rng=rng())
    result = spatial(segmentation=labels.astype(np.int16), rng=rng())
    assert result["segmentation"].dtype == np.int16


@pytest.mark.parametrize("dtype", [np.uint8, np.bool_])
@pytest.mark.parametrize("crop", CROPS)
@pytest.mark.parametrize("kind", [t.CenterCrop, t.RandomCrop])
def test_a_padding_label_that_the_dtype_lacks_is_that_error_of_crops(
    dtype: type, crop: tuple[int, ...], kind: Any
) -> None:
    labels = np.zeros((1, *SHAPE), dtype)
    with pytest.raises(ValueError, match=CANNOT_HOLD):
        kind(crop, padding_value_seg=-1)(segmentation=labels, rng=rng())


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
    noise = t.GaussianNoise(0.1)
    message = rf"numpy\.random\.Generator, got .*{hint}"
    with pytest.raises(TypeError, match=message):
        noise(image=np.zeros((1, 8, 8), np.float32), rng=wrong)
    with pytest.raises(TypeError, match=message):
        noise(data=np.zeros((2, 1, 8, 8), np.float32), rng=wrong)


def from_global_state() -> float:
    return float(np.random.uniform(0.5, 2))


def normal_from_global_state() -> float:
    return float(np.random.normal(1, 0.01))


def whole_state_from_global_state() -> float:
    """Draw all 624 words of the generator, after which its position is the same."""
    return float(np.random.uniform(0.5, 2, size=312)[0])


def from_rng(rng: np.random.Generator) -> float:
    return rng.uniform(0.5, 2)


def always() -> float:
    return 1.5


def gamma(exponent: Any) -> t.Gamma:
    return t.Gamma(exponent, 0, False, 1, 0)


@pytest.mark.parametrize(
    "callable_", [from_global_state, normal_from_global_state, whole_state_from_global_state]
)
def test_a_callable_that_draws_from_numpys_global_state_is_said_to(callable_: Any) -> None:
    name = callable_.__name__
    with pytest.warns(UserWarning, match=rf"{name}.* draws from numpy\.random.*called rng"):
        gamma(callable_)(image=sample(1, SHAPE)["image"], rng=rng())


@pytest.fixture
def pcg_as_global_generator() -> Iterator[None]:
    """Make NumPy's global generator draw from PCG64 during a test."""
    original = np.random.get_bit_generator()
    np.random.set_bit_generator(np.random.PCG64(1))
    yield
    np.random.set_bit_generator(original)


@pytest.mark.usefixtures("pcg_as_global_generator")
def test_that_callable_is_found_where_the_global_generator_was_replaced() -> None:
    with pytest.warns(UserWarning, match=r"draws from numpy\.random"):
        gamma(from_global_state)(image=sample(1, SHAPE)["image"], rng=rng())


@pytest.mark.parametrize("callable_", [from_rng, always])
def test_of_a_callable_that_does_not_nothing_is_said(callable_: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gamma(callable_)(image=sample(1, SHAPE)["image"], rng=rng())


def test_inside_an_augmenter_such_a_callable_is_seeded_and_nothing_is_said() -> None:
    ramp = np.ones((1, 2, 8, 8), np.float32).cumsum(axis=-1)

    def fingerprints() -> list[str]:
        data = [{"data": ramp.copy()} for _ in range(2)]
        with DeterministicAugmenter(data, gamma(from_global_state), 0, seed=5) as augmenter:
            return [fingerprint(batch) for batch in augmenter]

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first, second = fingerprints()
        assert fingerprints() == [first, second]
    assert first != second


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
    image = torch.from_numpy(sample(1, SHAPE)["image"])
    mirror = t.Mirror((0,))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        expected = mirror(image=image, rng=rng())["image"]
    image.requires_grad_()
    with pytest.warns(UserWarning, match=r"image requires a gradient.*image\.detach\(\)"):
        result = mirror(image=image, rng=rng())["image"]
    assert torch.equal(result, expected)


def masked(array: np.ndarray) -> Any:
    return np.ma.masked_greater(array, 0.5)


@pytest.mark.parametrize("key", ["image", "segmentation", "regression_target"])
@pytest.mark.parametrize("name", [*EVERY, "RandomApply, never"])
def test_a_masked_array_is_one_error_for_every_transform(name: str, key: str) -> None:
    transform: t.Transform = t.RandomApply(t.InvertImage(1), 0)
    if name in EVERY:
        transform = EVERY[name](3)
    image = np.random.default_rng(2).random((2, 8, 8, 8), dtype=np.float32)
    labels = np.ones((2, 8, 8, 8), np.int8)
    arrays = {"image": image, "segmentation": labels}
    arrays[key] = masked(arrays.get(key, image))
    with pytest.raises(TypeError, match=rf"^{key} is a numpy\.ma\.MaskedArray, .*{key}\.filled"):
        transform(**arrays, rng=rng())


def test_a_masked_array_in_a_batch_or_out_of_a_foreign_transform_is_that_error() -> None:
    images = np.random.default_rng(3).random((3, 1, 6, 6), dtype=np.float32)
    for batch in (masked(images), [images[0], masked(images[1])]):
        with pytest.raises(TypeError, match=r"^image is a numpy\.ma\.MaskedArray"):
            t.Mirror((0, 1))(data=batch, rng=rng())

    def hides(image: torch.Tensor) -> dict[str, Any]:
        return {"image": masked(image.numpy())}

    with pytest.raises(TypeError, match=r"^image of .*hides is a numpy\.ma\.MaskedArray"):
        t.ForeignTransform(hides)(image=images[0], rng=rng())
