"""Without a collate_fn, items of MONAI's data sets are collated as by MONAI.

MetaTensors keep their meta data on the way from a worker.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch

from detaug import DeterministicAugmenter, fingerprint
from detaug.pipeline.sources.collation import default_collate

pytest.importorskip("monai")

from monai.data import ArrayDataset, Dataset, MetaTensor, decollate_batch, list_data_collate
from monai.transforms import Compose, Flipd, RandCropByPosNegLabel, RandCropByPosNegLabeld

from tests.support.preloaded import run_code


def item(index: int) -> dict[str, Any]:
    """Return a volume with labels, an affine and a name of its own."""
    image = MetaTensor(
        torch.arange(512.0).reshape(1, 8, 8, 8) + index,
        affine=torch.diag(torch.tensor([index + 1.0, 2, 3, 1])),
        meta={"filename": f"case_{index}.nii.gz"},
    )
    label = MetaTensor((image.as_tensor() % 7 == 0).float())
    return {"image": image, "label": label, "name": f"case {index}"}


def items(count: int = 5) -> list[dict[str, Any]]:
    """Return the first items."""
    return [item(index) for index in range(count)]


CROPS = Compose(
    [
        Flipd(["image", "label"], 0),
        RandCropByPosNegLabeld(["image", "label"], "label", (4, 4, 4), num_samples=3),
    ]
)


def class_names(image: MetaTensor) -> list[list[str]]:
    """Return the classes of the transforms that were applied to each sample of a batch.

    MONAI records more, such as the address of the copy that was called.
    """
    names = []
    for operations in image.applied_operations:
        names.append([str(operation["class"]) for operation in operations])
    return names


def batches_of_crops(num_processes: int, **options: Any) -> list[Any]:
    """Return an epoch's batches of crops, with three crops of each item."""
    dataset = Dataset(items(), CROPS)
    with DeterministicAugmenter.from_dataset(
        dataset, 2, num_processes=num_processes, seed=1, **options
    ) as augmenter:
        return list(augmenter)


def test_lists_of_dicts_and_metatensors_are_collated_as_by_list_data_collate() -> None:
    expected_batches = batches_of_crops(0, collate_fn=list_data_collate)
    assert expected_batches[0]["image"].shape == (6, 1, 4, 4, 4)
    batches = [*batches_of_crops(0), *batches_of_crops(2)]
    for batch, expected in zip(batches, expected_batches * 2, strict=True):
        assert fingerprint(batch) == fingerprint(expected)
        image = batch["image"]
        assert type(image) is MetaTensor
        assert image.is_batch
        assert torch.equal(image.affine, expected["image"].affine)
        assert class_names(image) == class_names(expected["image"])
        samples = decollate_batch(batch)
        names = [sample["name"] for sample in samples]
        assert names == [sample["name"] for sample in decollate_batch(expected)]
        for sample in samples:
            stem = sample["name"].replace(" ", "_")
            assert sample["image"].meta["filename"] == f"{stem}.nii.gz"


def test_lists_of_metatensors_are_put_into_one_batch() -> None:
    crop = RandCropByPosNegLabel((4, 4, 4), items()[0]["label"], num_samples=2)
    samples = [crop(item["image"], item["label"]) for item in items(2)]
    assert fingerprint(default_collate(samples)) == fingerprint(list_data_collate(samples))


def test_lists_and_tuples_of_tensors_are_collated_as_by_torch() -> None:
    lists = [[torch.ones(2) * index, index] for index in range(3)]
    tuples = [tuple(pair) for pair in lists]
    arrays = ArrayDataset(torch.ones(3, 1, 2), None, torch.ones(3, 1), None)
    for dataset in (lists, tuples, arrays):
        samples = [dataset[index] for index in range(3)]
        expected = torch.utils.data.default_collate(samples)
        assert fingerprint(default_collate(samples)) == fingerprint(expected)


def test_nothing_of_other_libraries_is_imported_with_detaug(tmp_path: Path) -> None:
    code = """
import sys
import detaug.loops
from detaug import DeterministicAugmenter

dataset = [[{"x": 1}, {"x": 2}], [{"x": 3}, {"x": 4}]]
with DeterministicAugmenter.from_dataset(dataset, 2, num_processes=0, seed=1) as augmenter:
    assert sorted(next(augmenter)["x"].tolist()) == [1, 2, 3, 4]
for name in ("monai", "torchio", "cv2", "albumentations", "detaug.monai", "detaug.torchio"):
    assert name not in sys.modules, name
"""
    done = run_code(code, folder=tmp_path, environment=os.environ)
    assert done.returncode == 0, done.stderr
