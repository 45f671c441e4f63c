"""Pipelines of MONAI: transforms of arrays and of dicts, many samples of an item, caches."""

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


class Load(mt.Transform):  # type: ignore[misc, name-defined]
    """A transform that loads an image; it draws nothing, as MONAI's caches require."""

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
    """A user's transform that calls MONAI's one by one."""

    def __init__(self) -> None:
        self.rotate = mt.RandRotate(range_x=0.5, prob=1.0)
        self.noise = mt.RandGaussianNoise(prob=1.0, std=0.2)

    def __call__(self, data: Any) -> Any:
        return np.asarray(self.noise(self.rotate(data)))


def affine_and_noise() -> list[Any]:
    """Return transforms of image and label, and of the image alone."""
    keys = ("image", "label")
    return [
        mt.RandAffined(
            keys, prob=1.0, rotate_range=0.5, mode=("bilinear", "nearest"), padding_mode="border"
        ),
        mt.RandGaussianNoised("image", prob=1.0, std=0.2),
    ]


def crops_by_label() -> list[Any]:
    """Return transforms that make two samples of an item."""
    crop = mt.RandCropByPosNegLabeld(
        ("image", "label"), label_key="label", spatial_size=(8, 8), num_samples=2
    )
    return [crop, *affine_and_noise()]


def smooth_fields() -> list[Any]:
    """Return transforms that choose, and that draw smooth fields."""
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
    """Return the `build` of an example with a data set of MONAI's.

    Args:
        kind: the data set's class.
        transforms: returns the transforms after `Load`.
        arguments: of the class.
    """

    def build(folder: Path, **options: Any) -> DeterministicAugmenter:
        data = [{"index": index} for index in range(ITEMS)]
        dataset = kind(data, mt.Compose([Load(folder), *transforms()]), **arguments)
        return DeterministicAugmenter.from_dataset(
            dataset, 2, collate_fn=list_data_collate, **options
        )

    return build


def persistent(folder: Path, **options: Any) -> DeterministicAugmenter:
    """Build an augmenter of a data set that caches on disk."""
    build = data_set(monai.data.PersistentDataset, cache_dir=folder / "persistent")
    return build(folder, **options)


class OfBatches:
    """A user's transform that applies MONAI's dictionary transforms to the samples of a batch."""

    def __init__(self) -> None:
        self.transforms = mt.Compose(affine_and_noise())

    def __call__(self, image: Any, **others: Any) -> dict[str, Any]:
        results = []
        for sample in image:
            tensor = torch.from_numpy(sample)
            transformed = self.transforms({"image": tensor, "label": tensor})
            results.append(np.asarray(transformed["image"]))
        return {"image": np.stack(results), **others}


def whole_batches(folder: Path, **options: Any) -> DeterministicAugmenter:
    """Build an augmenter whose transform is `OfBatches`."""
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
    num_epochs = 4
    # Without the check, which loads items as well.
    with cached.build(tmp_path, seed=4, num_processes=num_processes, check=False) as augmenter:
        for epoch in range(num_epochs):
            augmenter.set_epoch(epoch)
            assert len(list(augmenter)) == len(augmenter)
    counts = Counter(index for index, _ in loads(tmp_path))
    assert set(counts) == set(range(ITEMS))
    at_most = 1 if cached.name == "CacheDataset" else max(1, num_processes)
    assert max(counts.values()) <= at_most, f"loads of the items in {num_epochs} epochs: {counts}"


class TypesOfImages(torch.utils.data.Dataset[Any]):
    """A data set of names: the class of what a transform of MONAI's returns."""

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> str:
        return type(mt.ScaleIntensity()(np.arange(8.0).reshape(2, 2, 2))).__name__


@pytest.mark.parametrize("method", [None, "fork", "spawn"])
def test_monais_switch_for_meta_data_is_that_of_the_start(method: Any) -> None:
    num_processes = 0
    executor = None
    if method is not None:
        num_processes = 1
        executor = LocalProcesses(method)
    try:
        monai.data.set_track_meta(False)
        with DeterministicAugmenter.from_dataset(
            TypesOfImages(),
            1,
            num_processes=num_processes,
            executor=executor,
            seed=1,
            check=False,
        ) as augmenter:
            first = next(augmenter)
            monai.data.set_track_meta(True)
            names = [first, *augmenter, augmenter.replay(0, 2)]
            assert monai.data.get_track_meta()
    finally:
        monai.data.set_track_meta(True)
    assert names == [["Tensor"]] * 7
