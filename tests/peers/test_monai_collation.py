"""What MONAI's data sets give is collated as by MONAI, without a collate_fn, and its tensors travel
whole.
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


def items(number: int = 5) -> list[dict[str, Any]]:
    found = []
    for i in range(number):
        image = MetaTensor(
            torch.arange(512.0).reshape(1, 8, 8, 8) + i,
            affine=torch.diag(torch.tensor([i + 1.0, 2, 3, 1])),
            meta={"filename": f"case_{i}.nii.gz"},
        )
        label = MetaTensor((image.as_tensor() % 7 == 0).float())
        found.append({"image": image, "label": label, "name": f"case {i}"})
    return found


CROPS = Compose(
    [
        Flipd(["image", "label"], 0),
        RandCropByPosNegLabeld(["image", "label"], "label", (4, 4, 4), num_samples=3),
    ]
)


def classes(image: MetaTensor) -> list[list[str]]:
    """Of the transforms that were applied to each; beside it MONAI notes an address of the copy
    that was called.
    """
    return [
        [str(operation["class"]) for operation in operations]
        for operations in image.applied_operations
    ]


def test_lists_of_dicts_and_metatensors_are_collated_as_by_list_data_collate() -> None:
    def run(n: int, **options: Any) -> list[Any]:
        with DeterministicAugmenter.from_dataset(
            Dataset(items(), CROPS), 2, num_processes=n, seed=1, **options
        ) as augmenter:
            return list(augmenter)

    expected = run(0, collate_fn=list_data_collate)
    assert expected[0]["image"].shape == (6, 1, 4, 4, 4)
    for ours, theirs in zip([*run(0), *run(2)], [*expected, *expected], strict=True):
        assert fingerprint(ours) == fingerprint(theirs)
        assert type(ours["image"]) is MetaTensor
        assert ours["image"].is_batch
        assert torch.equal(ours["image"].affine, theirs["image"].affine)
        assert classes(ours["image"]) == classes(theirs["image"])
        one, other = decollate_batch(ours), decollate_batch(theirs)
        assert [each["name"] for each in one] == [each["name"] for each in other]
        assert [each["image"].meta["filename"] for each in one] == [
            f"{each['name'].replace(' ', '_')}.nii.gz" for each in one
        ]


def test_lists_of_metatensors_are_put_into_one_batch() -> None:
    crop = RandCropByPosNegLabel((4, 4, 4), items()[0]["label"], num_samples=2)
    samples = [crop(item["image"], item["label"]) for item in items(2)]
    assert fingerprint(default_collate(samples)) == fingerprint(list_data_collate(samples))


def test_lists_and_tuples_of_tensors_are_collated_as_by_torch() -> None:
    pairs = [[torch.ones(2) * i, i] for i in range(3)]
    for samples in (
        pairs,
        [tuple(pair) for pair in pairs],
        ArrayDataset(torch.ones(3, 1, 2), None, torch.ones(3, 1), None),
    ):
        listed = [samples[i] for i in range(3)]
        expected = torch.utils.data.default_collate(listed)
        assert fingerprint(default_collate(listed)) == fingerprint(expected)


def test_nothing_of_other_libraries_is_imported_with_detaug(tmp_path: Path) -> None:
    code = """
import sys
import detaug.loops
from detaug import DeterministicAugmenter
with DeterministicAugmenter.from_dataset([[{"x": 1}, {"x": 2}], [{"x": 3}, {"x": 4}]], 2, num_processes=0, seed=1) as augmenter:
    assert sorted(next(augmenter)["x"].tolist()) == [1, 2, 3, 4]
assert not {'monai', 'torchio', 'cv2', 'albumentations', 'detaug.monai', 'detaug.torchio'} & set(sys.modules)
"""
    done = run_code(code, folder=tmp_path, environment=os.environ)
    assert done.returncode == 0, done.stderr
