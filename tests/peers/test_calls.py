"""How transforms of other libraries take a batch: known by class, or as `call` says."""

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


def first(transform: Any, batch: Any = BATCH, n: int = 0, **options: Any) -> Any:
    with DeterministicAugmenter(
        Batches(batch), transform, n, seed=1, batches_per_epoch=2, **options
    ) as augmenter:
        return next(augmenter)


class OwnMap(monai.MapTransform):  # type: ignore[misc,name-defined]
    def __call__(self, data: Any) -> Any:
        return {**data, "image": data["image"] + 1}


class OwnKeywords(monai.Randomizable):  # type: ignore[misc,name-defined]
    def __call__(self, **batch: Any) -> Any:
        return batch


class OwnModule(torch.nn.Module):
    def forward(self, **batch: Any) -> Any:
        return batch


def test_libraries_are_known_by_the_class_whose_code_is_called() -> None:
    of_dicts = [
        monai.Compose([]),
        monai.RandFlipd(["image"], 1.0, 0),
        OwnMap(["image"]),
        v2.RandomHorizontalFlip(1.0),
        v2.Compose([v2.Identity()]),
        torchio.RandomFlip(),
    ]
    assert [takes_a_dict(type(each)) for each in of_dicts] == [True] * 6
    others = [
        albumentations.Compose([]),
        OwnKeywords(),
        OwnModule(),
        torch.nn.Sequential(),
        lambda **batch: batch,
    ]
    assert [takes_a_dict(type(each)) for each in others] == [False] * 5


@pytest.mark.parametrize("n", [0, 1])
def test_transforms_of_dicts_get_the_dict(n: int) -> None:
    flipped = BATCH["image"].flip(2)
    transform = monai.Compose(
        [monai.RandFlipd(["image"], 1.0, 1), monai.RandGaussianNoised(["label"], 1.0)]
    )
    batch = first(transform, n=n)
    assert torch.equal(torch.as_tensor(batch["image"]), flipped)
    assert fingerprint(batch) == fingerprint(first(transform))
    assert torch.equal(first(OwnMap(["image"]), n=n)["image"], BATCH["image"] + 1)
    assert torch.equal(first(v2.RandomVerticalFlip(1.0), n=n)["image"], flipped)


def test_call_says_it_for_all_others() -> None:
    assert (
        fingerprint(first(_same, call="kwargs"))
        == fingerprint(first(_same))
        == fingerprint(first(_same, call="dict"))
    )
    assert torch.equal(first(lambda image: image, torch.ones(2), call="dict"), torch.ones(2))
    with pytest.raises(ValueError, match="call must be one of 'dict', 'kwargs', got 'kw'"):
        first(_same, call="kw")
    with pytest.raises(ValueError, match="got ''"):
        first(_same, call="")


def test_the_call_is_part_of_the_pipelines_name() -> None:
    def state(**options: Any) -> Any:
        with DeterministicAugmenter(
            Batches(BATCH), _same, 0, seed=1, batches_per_epoch=2, **options
        ) as augmenter:
            return augmenter.state_dict()["pipeline"]

    assert state() == state(call="kwargs") != state(call="dict")


def _same(*items: Any, **batch: Any) -> Any:
    return items[0] if items else batch
