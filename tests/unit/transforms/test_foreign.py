"""Unchanged transforms of other libraries in a pipeline."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch

from detaug import DeterministicAugmenter, fingerprint
from detaug.transforms import Compose, ForeignTransform, GaussianNoise, Mirror
from tests.support.transforms.generators import rng
from tests.support.transforms.golden import sample

SHAPE = (12, 10, 8)


def drawing(image: torch.Tensor, **others: Any) -> dict[str, Any]:
    """Draw from all three global generators and write into the image."""
    image += random.random() + np.random.random() + torch.rand(image.shape)
    return {"image": image, **others}


def test_global_generators_are_seeded_for_it() -> None:
    arrays = sample(1, SHAPE)
    transform = ForeignTransform(drawing)
    fingerprint_before = fingerprint(arrays)
    result = transform(**arrays, rng=rng())
    again = transform(**arrays, rng=rng())
    of_another_seed = transform(**arrays, rng=rng(4))
    assert fingerprint(again) == fingerprint(result)
    assert fingerprint(of_another_seed) != fingerprint(result)
    assert fingerprint(arrays) == fingerprint_before
    image = result["image"]
    assert isinstance(image, np.ndarray)
    assert image.dtype == np.float32
    assert np.ptp(image - arrays["image"]) > 0.5


def halved(**arrays: torch.Tensor) -> dict[str, Any]:
    return {key: array[:, ::2] for key, array in arrays.items()}


def shapes_halved(shapes: dict[str, Any]) -> dict[str, Any]:
    halves = {}
    for key, (channels, length, *others) in shapes.items():
        halves[key] = (channels, -(-length // 2), *others)
    return halves


def shapes_of(sample: dict[str, Any]) -> dict[str, Any]:
    return {key: array.shape for key, array in sample.items()}


def test_another_shape_must_be_said_and_then_later_params_fit_it() -> None:
    arrays = sample(1, SHAPE)
    with pytest.raises(
        ValueError,
        match=r"gave image of shape \(2, 6, 10, 8\), but \(2, 12, 10, 8\) was "
        r"expected.*shapes_after=",
    ):
        ForeignTransform(halved)(**arrays, rng=rng())
    pipeline = Compose([ForeignTransform(halved, shapes_halved), Mirror((0, 1, 2))])
    params = pipeline.sample(rng(), shapes_of(arrays))
    result = pipeline.apply(arrays, params)
    assert shapes_of(result) == pipeline.output_shapes(shapes_of(arrays), params)
    assert result["image"].shape == (2, 6, 10, 8)


class Keeping:
    """A transform that returns memory that it keeps."""

    def __init__(self) -> None:
        self.kept = torch.zeros((2, *SHAPE))

    def __call__(self, image: torch.Tensor, **others: Any) -> dict[str, Any]:
        return {"image": self.kept, **others}


def test_memory_that_the_transform_keeps_is_not_written_into() -> None:
    transform = Keeping()
    pipeline = Compose([ForeignTransform(transform), GaussianNoise(0.1)])
    pipeline(**sample(1, SHAPE), rng=rng())
    assert not transform.kept.any()


def test_levels_of_deep_supervision_come_back_as_a_list() -> None:
    def levels(segmentation: torch.Tensor, **others: Any) -> dict[str, Any]:
        return {"segmentation": [segmentation, segmentation[:, ::2]], **others}

    first, second = ForeignTransform(levels)(**sample(1, SHAPE), rng=rng())["segmentation"]
    assert first.shape == (2, 12, 10, 8)
    assert second.shape == (2, 6, 10, 8)


@pytest.mark.parametrize("wrong", [None, 3, {"image": "an image"}])
def test_what_is_no_dictionary_of_arrays_is_refused_by_name(wrong: Any) -> None:
    def theirs(**arrays: Any) -> Any:
        return wrong

    with pytest.raises(TypeError, match="theirs must give"):
        ForeignTransform(theirs)(**sample(1, SHAPE), rng=rng())
    with pytest.raises(TypeError, match="callable"):
        ForeignTransform(3)  # type: ignore[arg-type]


class Counting:
    """A transform that counts its calls."""

    calls = 0

    def __call__(self, image: torch.Tensor, **others: Any) -> dict[str, Any]:
        self.calls += 1
        return {"image": image + self.calls, **others}


def test_an_augmenter_starts_every_batch_from_what_it_was_given() -> None:
    data = [{"data": np.zeros((3, 1, 4, 4), np.float32)} for _ in range(3)]
    pipeline = Compose([ForeignTransform(Counting()), Mirror((0, 1))])
    with DeterministicAugmenter(data, pipeline, 0, seed=1) as augmenter:
        for batch in augmenter:
            assert batch["data"][:, 0, 0, 0].tolist() == [1, 2, 3]


def test_a_foreign_transform_that_was_put_into_a_pipeline_later_is_told() -> None:
    pipeline = Compose([Mirror((0, 1, 2))])
    pipeline.transforms.append(drawing)  # type: ignore[arg-type]
    message = r"is not a detaug transform: .* Wrap it in detaug\.transforms\.ForeignTransform"
    with pytest.raises(TypeError, match=message):
        pipeline(**sample(1, SHAPE), rng=rng())
    for name in ("spatial_dims", "kernels"):
        with pytest.raises(TypeError, match=message):
            getattr(pipeline, name)
