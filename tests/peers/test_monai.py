"""MONAI: array and dictionary transforms, several samples of an item, and its caching data sets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("monai", reason="MONAI is not installed (the extra `peers`)")

import monai.data
import monai.transforms as mt
from monai.data import list_data_collate

from detaug import DeterministicAugmenter, LocalProcesses
from tests.peers.conformance import Conformance
from tests.peers.items import ITEMS, Example, from_blank, image, loads, note_load, of_images

SHAPE = (1, 20, 22)
_EPOCHS = 4


class Load(mt.Transform):  # type: ignore[misc, name-defined]
    """Deterministic, as what MONAI caches must be."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)

    def __call__(self, data: dict[str, Any]) -> dict[str, Any]:
        note_load(self.folder, data["index"])
        values = image(*SHAPE)
        return {
            "image": torch.from_numpy(values),
            "label": torch.from_numpy(np.round(values)),
            "index": data["index"],
        }


class WithoutComposition:
    """Transforms called one by one, as many write it."""

    def __init__(self) -> None:
        self.rotate = mt.RandRotate(range_x=0.5, prob=1.0)
        self.noise = mt.RandGaussianNoise(prob=1.0, std=0.2)

    def __call__(self, data: Any) -> Any:
        return np.asarray(self.noise(self.rotate(data)))


def affine_and_noise() -> list[Any]:
    keys = ("image", "label")
    return [
        mt.RandAffined(
            keys, prob=1.0, rotate_range=0.5, mode=("bilinear", "nearest"), padding_mode="border"
        ),
        mt.RandGaussianNoised("image", prob=1.0, std=0.2),
    ]


def crops_by_label() -> list[Any]:
    crop = mt.RandCropByPosNegLabeld(
        ("image", "label"), label_key="label", spatial_size=(8, 8), num_samples=2
    )
    return [crop, *affine_and_noise()]


def smooth_fields() -> list[Any]:
    return [
        mt.OneOf([mt.RandBiasFieldd("image", prob=1.0), mt.RandGibbsNoised("image", prob=1.0)]),
        mt.Rand2DElasticd(
            "image", spacing=(6, 6), magnitude_range=(1, 2), prob=1.0, padding_mode="border"
        ),
        mt.RandGaussianNoised("image", prob=1.0, std=0.2),
    ]


def data_set(
    kind: Callable[..., Any],
    transforms: Callable[[], list[Any]] = affine_and_noise,
    **arguments: Any,
) -> Callable[..., DeterministicAugmenter]:
    def build(folder: Path, **options: Any) -> DeterministicAugmenter:
        data = [{"index": index} for index in range(ITEMS)]
        dataset = kind(data, mt.Compose([Load(folder), *transforms()]), **arguments)
        return DeterministicAugmenter.from_dataset(
            dataset, 2, collate_fn=list_data_collate, **options
        )

    return build


def persistent(folder: Path, **options: Any) -> DeterministicAugmenter:
    return data_set(monai.data.PersistentDataset, cache_dir=folder / "persistent")(
        folder, **options
    )


class OfBatches:
    """Dictionary transforms on the samples of a batch, which MONAI's decollating users do."""

    def __init__(self) -> None:
        self.transforms = mt.Compose(affine_and_noise())

    def __call__(self, image: Any, **others: Any) -> dict[str, Any]:
        made = [
            self.transforms({"image": torch.from_numpy(each), "label": torch.from_numpy(each)})
            for each in image
        ]
        return {"image": np.stack([np.asarray(each["image"]) for each in made]), **others}


def whole_batches(folder: Path, **options: Any) -> DeterministicAugmenter:
    return from_blank(folder, (2, *SHAPE), OfBatches(), **options)


_QUIET = {"progress": False, "num_workers": 0}
_CACHES = (
    Example("CacheDataset", data_set(monai.data.CacheDataset, **_QUIET)),
    Example("runtime_cache", data_set(monai.data.CacheDataset, runtime_cache=True, **_QUIET)),
    Example("PersistentDataset cache", persistent),
)


class TestMonai(Conformance):
    EXAMPLES = (
        Example("array transforms one by one", of_images(SHAPE, WithoutComposition), checked=True),
        Example(
            "RandCropByPosNegLabeld", data_set(monai.data.Dataset, crops_by_label), checked=True
        ),
        Example("fields and choices", data_set(monai.data.Dataset, smooth_fields)),
        *_CACHES,
        Example("whole batches", whole_batches, indices=False),
    )


@pytest.mark.parametrize("cached", _CACHES, ids=str)
@pytest.mark.parametrize("num_processes", [0, 2])
def test_a_cache_goes_on_caching(cached: Example, num_processes: int, tmp_path: Path) -> None:
    with cached.build(
        tmp_path, seed=4, num_processes=num_processes, check=False
    ) as augmenter:  # a check loads as well
        for epoch in range(_EPOCHS):
            augmenter.set_epoch(epoch)
            assert len(list(augmenter)) == len(augmenter)
    times = Counter(index for index, _ in loads(tmp_path))
    assert set(times) == set(range(ITEMS))
    at_most = 1 if cached.name == "CacheDataset" else max(1, num_processes)
    assert max(times.values()) <= at_most, (
        f"in {_EPOCHS} epochs the items were loaded so often: {times}"
    )


class TypesOfImages(torch.utils.data.Dataset[Any]):
    """Gives the class of what MONAI's transforms return."""

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> str:
        return type(mt.ScaleIntensity()(np.arange(8.0).reshape(2, 2, 2))).__name__


@pytest.mark.parametrize("method", [None, "fork", "spawn"])
def test_monais_switch_for_meta_data_is_that_of_the_start(method: Any) -> None:
    processes = 0
    executor = None
    if method is not None:
        processes = 1
        executor = LocalProcesses(method)
    try:
        monai.data.set_track_meta(False)
        with DeterministicAugmenter.from_dataset(
            TypesOfImages(), 1, num_processes=processes, executor=executor, seed=1, check=False
        ) as augmenter:
            first = next(augmenter)
            monai.data.set_track_meta(True)
            names = [first, *augmenter, augmenter.replay(0, 2)]
            assert monai.data.get_track_meta()
    finally:
        monai.data.set_track_meta(True)
    assert names == [["Tensor"]] * 7
