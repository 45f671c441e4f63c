"""splits_final.json: what is written is what nnU-Net reads, and what would go wrong with it is found beforehand."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import numpy as np
import pytest
import torch

from detaug.nnunet.splits import check_splits, preprocessed_cases, write_splits

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


def test_what_is_written_is_read_back(tmp_path):
    splits = kfold(CASES, 5, 7)
    path = write_splits(tmp_path, splits)
    assert path == tmp_path / "splits_final.json"
    assert json.loads(path.read_text()) == splits
    assert check_splits(tmp_path) == check_splits(path, CASES) == splits
    assert os.listdir(tmp_path) == ["splits_final.json"]


def test_the_bytes_are_those_of_nnunets_own_save_json(tmp_path):
    files = pytest.importorskip("batchgenerators.utilities.file_and_folder_operations")
    splits = kfold(CASES, 5, 7)
    files.save_json(splits, str(tmp_path / "theirs.json"))
    assert write_splits(tmp_path, splits).read_bytes() == (tmp_path / "theirs.json").read_bytes()


@pytest.mark.parametrize(
    "one_fold",
    [
        lambda split: [split],
        lambda split: (split,),
        lambda split: iter([tuple(split.values())]),
        lambda split: [{side: np.array(cases) for side, cases in split.items()}],
    ],
)
def test_splits_of_any_form_are_taken(tmp_path, one_fold):
    split = kfold(CASES, 5, 7)[0]
    write_splits(str(tmp_path / "mine.json"), one_fold(split))
    assert check_splits(tmp_path / "mine.json") == [split]


def test_other_splits_are_overwritten_only_on_request(tmp_path):
    first, other = kfold(CASES, 5, 7), kfold(CASES, 5, 8)
    path = write_splits(tmp_path, first)
    before = path.stat()
    assert write_splits(tmp_path, first) == path
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    with pytest.raises(FileExistsError, match="overwrite=True"):
        write_splits(tmp_path, other)
    assert check_splits(tmp_path) == first
    write_splits(tmp_path, other, overwrite=True)
    assert check_splits(tmp_path) == other
    path.write_text("[{")
    with pytest.raises(FileExistsError, match="other splits"):
        write_splits(tmp_path, other)


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = write_splits(tmp_path, kfold(CASES, 5, 7))
    before = path.read_bytes()

    def full(descriptor):
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        write_splits(tmp_path, kfold(CASES, 5, 8), overwrite=True)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["splits_final.json"]


def test_others_may_read_the_file_as_the_umask_says(tmp_path):
    (tmp_path / "plain").touch()
    mode = stat.S_IMODE((tmp_path / "plain").stat().st_mode)
    assert stat.S_IMODE(write_splits(tmp_path, kfold(CASES, 5, 7)).stat().st_mode) == mode


@pytest.mark.parametrize(
    ("splits", "error", "says"),
    [
        ([], ValueError, "no folds"),
        (kfold(range(10), 5, 7), TypeError, "cases are strings"),
        ([{"train": ["a"]}], ValueError, "'train' and 'val'"),
        ([{"train": ["a"], "val": "b"}], TypeError, "list of cases"),
        (["ab"], TypeError, "must be a mapping"),
        ("ab", TypeError, "list of splits"),
        (7, TypeError, "list of splits"),
        ([(["a", "b", "b"], ["a"]), ([], ["a"])], ValueError,
         r"fold 0: 'train' .*more than once: 'b'\n- fold 0: .*'val': 'a'\n- fold 1: 'train' is empty"),
    ],
)  # fmt: skip
def test_what_nnunet_could_not_use_is_not_written(tmp_path, splits, error, says):
    with pytest.raises(error, match=says):
        write_splits(tmp_path, splits)
    assert os.listdir(tmp_path) == []


def test_places_that_are_none_are_refused(tmp_path):
    splits = kfold(CASES, 5, 7)
    with pytest.raises(FileNotFoundError, match="no folder"):
        write_splits(tmp_path / "missing" / "splits_final.json", splits)
    with pytest.raises(FileNotFoundError, match="neither"):
        write_splits(tmp_path / "Dataset001_Missing", splits)
    with pytest.raises(FileNotFoundError, match="write_splits"):
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


def test_nnunets_trainer_trains_by_what_is_written(tmp_path):
    pytest.importorskip("nnunetv2")
    from detaug.demo.nnunet_dataset import nnunet_folders

    splits = kfold(CASES, 4, 7)
    with nnunet_folders(tmp_path) as root:
        from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer

        folder = preprocessed(root / "preprocessed" / "Dataset001_Test")
        write_splits(folder, splits)
        for configuration in ("2d", "3d_fullres"):
            for fold, split in enumerate(splits):
                settings = {"data_identifier": f"nnUNetPlans_{configuration}", "architecture": {}}
                plans = {
                    "dataset_name": "Dataset001_Test",
                    "plans_name": "nnUNetPlans",
                    "continue_training": False,
                    "configurations": {configuration: settings},
                }
                labels = {"labels": {"background": 0, "tumour": 1}, "file_ending": ".nii.gz"}
                trainer = nnUNetTrainer(plans, configuration, fold, labels, torch.device("cpu"))
                assert trainer.do_split() == (split["train"], split["val"])
