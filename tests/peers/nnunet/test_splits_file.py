"""splits_final.json: what would go wrong with it in a training is found beforehand."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from detaug.nnunet.splits import check_splits, preprocessed_cases

CASES = [f"case_{i:03d}" for i in range(10)]


def kfold(cases, k, seed):
    """Some splits, other ones for every seed."""
    order = np.random.default_rng(seed).permutation(cases).tolist()
    return [{"train": sorted({*cases} - {*order[fold::k]}), "val": sorted(order[fold::k])} for fold in range(k)]


def preprocessed(folder: Path, cases=CASES) -> Path:
    """A folder as nnU-Net's preprocessing leaves it, with cases of one voxel."""
    for configuration in ("nnUNetPlans_2d", "nnUNetPlans_3d_fullres"):
        (folder / configuration).mkdir(parents=True)
    (folder / "gt_segmentations").mkdir()
    for case in cases:
        (folder / "gt_segmentations" / f"{case}.nii.gz").touch()
        (folder / "nnUNetPlans_2d" / f"{case}.pkl").touch()
        for name in (f"{case}.b2nd", f"{case}_seg.b2nd", f"{case}.pkl"):
            (folder / "nnUNetPlans_3d_fullres" / name).touch()
        np.savez(folder / "nnUNetPlans_2d" / f"{case}.npz", data=np.zeros((1, 1, 1, 1)))
    return folder


def write_splits(folder: Path, splits: list) -> None:
    (folder / "splits_final.json").write_text(json.dumps(splits))


def test_whole_splits_are_read(tmp_path):
    splits = kfold(CASES, 5, 7)
    write_splits(tmp_path, splits)
    assert check_splits(tmp_path) == check_splits(tmp_path / "splits_final.json", CASES) == splits
    (tmp_path / "splits_final.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"there is no .*splits_final\.json"):
        check_splits(tmp_path)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("not json", "not JSON"),
        ("[]", "no folds"),
        ('{"train": ["a"], "val": ["b"]}', "must be a list of folds, not dict"),
        ('[["a"]]', 'must be {"train": [...], "val": [...]}, not list'),
        ('[{"train": ["a"], "test": ["b"]}]', "no 'val', only ['test', 'train']"),
        ('[{"train": "abc", "val": ["b"]}]', "must be a list of cases, not str"),
        ('[{"train": ["a"], "val": []}]', "'val' is empty"),
        ('[{"train": ["a", 3], "val": ["b"]}]', "no strings: 3"),
        ('[{"train": ["a", "a"], "val": ["b"]}]', "more than once: 'a'"),
        ('[{"train": ["a", "b"], "val": ["b"]}]', "in 'train' and in 'val': 'b'"),
    ],
)
def test_each_fault_of_form_is_found(tmp_path, text, says):
    (tmp_path / "splits_final.json").write_text(text)
    with pytest.raises(ValueError, match=r"fault|not JSON") as error:
        check_splits(tmp_path)
    assert says in str(error.value)


def test_every_fault_is_in_one_message(tmp_path):
    folds = [{"train": ["a", "a", "x"], "val": ["b", "a"]}, {"train": ["a"], "val": ["b", "c", "d"]}, 7]
    (tmp_path / "splits_final.json").write_text(json.dumps(folds))
    with pytest.raises(ValueError, match="has 5 faults") as error:
        check_splits(tmp_path, ids=["a", "b", "c", "d"])
    for says in (
        "fold 0: 'train' has cases more than once: 'a'",
        "fold 0: cases are in 'train' and in 'val': 'a'",
        "fold 0: cases that are not in the given ids: 'x'",
        "fold 0: cases of the given ids that it leaves out: 'c', 'd'",
        "fold 2: it must be",
    ):
        assert says in str(error.value)
    assert "fold 1" not in str(error.value)


def test_cases_are_those_that_lie_preprocessed_beside_the_file(tmp_path):
    folder = preprocessed(tmp_path / "Dataset001_Test")
    assert preprocessed_cases(folder) == {"nnUNetPlans_2d": CASES, "nnUNetPlans_3d_fullres": CASES}
    splits = kfold(CASES, 5, 7)
    write_splits(folder, splits)
    assert check_splits(folder) == splits
    (folder / "nnUNetPlans_3d_fullres" / "case_004.b2nd").unlink()
    (folder / "nnUNetPlans_2d" / "case_011.npz").touch()
    with pytest.raises(ValueError, match="10 faults") as error:
        check_splits(folder)
    assert "fold 0: cases that are not in nnUNetPlans_3d_fullres: 'case_004'" in str(error.value)
    assert "fold 0: cases of nnUNetPlans_2d that it leaves out: 'case_011'" in str(error.value)
    # what the caller says counts more
    assert check_splits(folder, CASES) == splits


def test_nnunets_own_listing_is_the_same(tmp_path):
    dataset = pytest.importorskip("nnunetv2.training.dataloading.nnunet_dataset")
    folder = preprocessed(tmp_path)
    for name, kind in (("nnUNetPlans_2d", "nnUNetDatasetNumpy"), ("nnUNetPlans_3d_fullres", "nnUNetDatasetBlosc2")):
        theirs = getattr(dataset, kind).get_identifiers(str(folder / name))
        assert preprocessed_cases(folder)[name] == sorted(theirs)


def test_nnunets_own_splits_pass_the_check(tmp_path):
    crossval = pytest.importorskip("nnunetv2.utilities.crossval_split")
    files = pytest.importorskip("batchgenerators.utilities.file_and_folder_operations")
    files.save_json(crossval.generate_crossval_split(CASES), str(tmp_path / "splits_final.json"))
    assert len(check_splits(preprocessed(tmp_path))) == 5
