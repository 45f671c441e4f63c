"""MONAI: array and dictionary transforms, several samples of an item, and its caching data sets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import monai.data
import monai.transforms as mt
import numpy as np
import torch

from detaug import DeterministicAugmenter
from tests.peers.items import ITEMS, Example, from_blank, from_images, image, note_load

SHAPE = (1, 20, 22)


class Load(mt.Transform):  # type: ignore[misc, name-defined]
    """Deterministic, as what MONAI caches must be."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)

    def __call__(self, data: dict[str, Any]) -> dict[str, Any]:
        note_load(self.folder, data["index"])
        values = image(*SHAPE)
        return {"image": torch.from_numpy(values), "label": torch.from_numpy(np.round(values)), "index": data["index"]}


def array_transforms() -> Any:
    return mt.Compose(
        [
            mt.RandFlip(0.5, spatial_axis=0),
            mt.RandAffine(prob=1.0, rotate_range=0.5, translate_range=2, padding_mode="border"),
            mt.RandGaussianNoise(prob=1.0, std=0.2),
        ]
    )


class WithoutComposition:
    """Transforms called one by one, as many write it."""

    def __init__(self) -> None:
        self.rotate = mt.RandRotate(range_x=0.5, prob=1.0)
        self.noise = mt.RandGaussianNoise(prob=1.0, std=0.2)

    def __call__(self, data: Any) -> Any:
        return np.asarray(self.noise(self.rotate(data)))


class AsArray:
    def __init__(self) -> None:
        self.transforms = array_transforms()

    def __call__(self, data: Any) -> Any:
        return np.asarray(self.transforms(data))


def affine_and_noise() -> list[Any]:
    keys = ("image", "label")
    return [
        mt.RandAffined(keys, prob=1.0, rotate_range=0.5, mode=("bilinear", "nearest"), padding_mode="border"),
        mt.RandGaussianNoised("image", prob=1.0, std=0.2),
    ]


def spatial_crops() -> list[Any]:
    return [mt.RandSpatialCropSamplesd(("image", "label"), (8, 8), 3, random_size=False), *affine_and_noise()]


def crops_by_label() -> list[Any]:
    crop = mt.RandCropByPosNegLabeld(("image", "label"), label_key="label", spatial_size=(8, 8), num_samples=2)
    return [crop, *affine_and_noise()]


def smooth_fields() -> list[Any]:
    return [
        mt.OneOf([mt.RandBiasFieldd("image", prob=1.0), mt.RandGibbsNoised("image", prob=1.0)]),
        mt.Rand2DElasticd("image", spacing=(6, 6), magnitude_range=(1, 2), prob=1.0, padding_mode="border"),
        mt.RandGaussianNoised("image", prob=1.0, std=0.2),
    ]


def data_set(
    kind: Callable[..., Any], transforms: Callable[[], list[Any]] = affine_and_noise, **arguments: Any
) -> Callable[..., DeterministicAugmenter]:
    def build(folder: Path, **options: Any) -> DeterministicAugmenter:
        data = [{"index": index} for index in range(ITEMS)]
        dataset = kind(data, mt.Compose([Load(folder), *transforms()]), **arguments)
        return DeterministicAugmenter.from_dataset(dataset, 2, collate_fn=monai.data.list_data_collate, **options)

    return build


def persistent(folder: Path, **options: Any) -> DeterministicAugmenter:
    return data_set(monai.data.PersistentDataset, cache_dir=folder / "persistent")(folder, **options)


class OfBatches:
    """Dictionary transforms on the samples of a batch, which MONAI's decollating users do."""

    def __init__(self) -> None:
        self.transforms = mt.Compose(affine_and_noise())

    def __call__(self, image: Any, **others: Any) -> dict[str, Any]:
        made = [self.transforms({"image": torch.from_numpy(each), "label": torch.from_numpy(each)}) for each in image]
        return {"image": np.stack([np.asarray(each["image"]) for each in made]), **others}


def whole_batches(folder: Path, **options: Any) -> DeterministicAugmenter:
    return from_blank(folder, (2, *SHAPE), OfBatches(), **options)


def users_data_set(make: Callable[[], Callable[[Any], Any]]) -> Callable[..., DeterministicAugmenter]:
    def build(folder: Path, **options: Any) -> DeterministicAugmenter:
        return from_images(folder, SHAPE, make(), **options)

    return build


_QUIET = {"progress": False, "num_workers": 0}

EXAMPLES = [
    Example("array transforms", users_data_set(AsArray)),
    Example("array transforms one by one", users_data_set(WithoutComposition), often=True),
    Example("dictionary transforms", data_set(monai.data.Dataset)),
    Example("RandSpatialCropSamplesd", data_set(monai.data.Dataset, spatial_crops), often=True),
    Example("RandCropByPosNegLabeld", data_set(monai.data.Dataset, crops_by_label)),
    Example("fields and choices", data_set(monai.data.Dataset, smooth_fields)),
    Example("CacheDataset", data_set(monai.data.CacheDataset, **_QUIET)),
    Example("runtime_cache", data_set(monai.data.CacheDataset, runtime_cache=True, **_QUIET), often=True),
    Example("PersistentDataset cache", persistent),
    Example("whole batches", whole_batches, indices=False, often=True),
]
