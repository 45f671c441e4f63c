"""Transforms of other libraries get a batch as their class takes it, or as `call` says."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from detaug import DeterministicAugmenter, fingerprint
from detaug.pipeline.calling import takes_a_dict

monai = pytest.importorskip("monai.transforms")
v2 = pytest.importorskip("torchvision.transforms.v2")
albumentations = pytest.importorskip("albumentations")
torchio = pytest.importorskip("torchio")


class Batches:
    """An endless loader of one batch."""

    def __init__(self, batch: Any) -> None:
        self.batch = batch

    def __iter__(self) -> Batches:
        return self

    def __next__(self) -> Any:
        return self.batch


BATCH = {
    "image": torch.arange(32.0).reshape(1, 2, 4, 4),
    "label": torch.arange(32).reshape(1, 2, 4, 4),
}


def augmenter(
    transform: Any, batch: Any = BATCH, num_processes: int = 0, **options: Any
) -> DeterministicAugmenter:
    """Return an augmenter of `Batches` with two batches in an epoch."""
    return DeterministicAugmenter(
        Batches(batch), transform, num_processes, seed=1, batches_per_epoch=2, **options
    )


def first(transform: Any, batch: Any = BATCH, num_processes: int = 0, **options: Any) -> Any:
    """Return the first batch of an `augmenter`."""
    with augmenter(transform, batch, num_processes, **options) as batches:
        return next(batches)


class OwnMap(monai.MapTransform):  # type: ignore[misc,name-defined]
    """A user's transform of dictionaries, below MONAI's class."""

    def __call__(self, data: Any) -> Any:
        return {**data, "image": data["image"] + 1}


class OwnKeywords(monai.Randomizable):  # type: ignore[misc,name-defined]
    """A user's transform of keyword arguments, below a class of MONAI's."""

    def __call__(self, **batch: Any) -> Any:
        return batch


class OwnModule(torch.nn.Module):
    """A user's module that takes keyword arguments."""

    def forward(self, **batch: Any) -> Any:
        return batch


def unchanged(*items: Any, **batch: Any) -> Any:
    """Return the batch, whether it comes as a dict or as keyword arguments."""
    if items:
        return items[0]
    return batch


def image_itself(image: Any) -> Any:
    """Return the only argument, which has the name of a key."""
    return image


def test_libraries_are_known_by_the_class_whose_code_is_called() -> None:
    takers_of_dicts = [
        monai.Compose([]),
        monai.RandFlipd(["image"], 1.0, 0),
        OwnMap(["image"]),
        v2.RandomHorizontalFlip(1.0),
        v2.Compose([v2.Identity()]),
        torchio.RandomFlip(),
    ]
    for transform in takers_of_dicts:
        assert takes_a_dict(type(transform))
    others = [
        albumentations.Compose([]),
        OwnKeywords(),
        OwnModule(),
        torch.nn.Sequential(),
        unchanged,
    ]
    for transform in others:
        assert not takes_a_dict(type(transform))


@pytest.mark.parametrize("num_processes", [0, 1])
def test_transforms_of_dicts_get_the_dict(num_processes: int) -> None:
    flipped = BATCH["image"].flip(2)
    transform = monai.Compose(
        [monai.RandFlipd(["image"], 1.0, 1), monai.RandGaussianNoised(["label"], 1.0)]
    )
    by_monai = first(transform, num_processes=num_processes)
    assert torch.equal(torch.as_tensor(by_monai["image"]), flipped)
    assert fingerprint(by_monai) == fingerprint(first(transform))
    by_own = first(OwnMap(["image"]), num_processes=num_processes)
    assert torch.equal(by_own["image"], BATCH["image"] + 1)
    by_torchvision = first(v2.RandomVerticalFlip(1.0), num_processes=num_processes)
    assert torch.equal(by_torchvision["image"], flipped)


def test_call_says_it_for_all_others() -> None:
    expected = fingerprint(first(unchanged))
    assert fingerprint(first(unchanged, call="kwargs")) == expected
    assert fingerprint(first(unchanged, call="dict")) == expected
    assert torch.equal(first(image_itself, torch.ones(2), call="dict"), torch.ones(2))
    with pytest.raises(ValueError, match="call must be one of 'dict', 'kwargs', got 'kw'"):
        first(unchanged, call="kw")
    with pytest.raises(ValueError, match="got ''"):
        first(unchanged, call="")


def test_the_call_is_part_of_the_pipelines_name() -> None:
    def name(**options: Any) -> Any:
        with augmenter(unchanged, **options) as batches:
            return batches.state_dict()["pipeline"]

    assert name() == name(call="kwargs")
    assert name() != name(call="dict")
