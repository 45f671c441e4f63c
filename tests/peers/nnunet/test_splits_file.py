"""splits_final.json: what would go wrong with it in a training is found beforehand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from detaug.nnunet.splits import check_splits

CASES = [f"case_{i:03d}" for i in range(10)]
SPLITS = [
    {"train": sorted({*CASES} - {*CASES[fold::5]}), "val": CASES[fold::5]} for fold in range(5)
]


def preprocessed(folder: Path) -> Path:
    """A folder as nnU-Net's preprocessing leaves it."""
    for name in ("nnUNetPlans_2d", "nnUNetPlans_3d_fullres", "gt_segmentations"):
        (folder / name).mkdir(parents=True)
        for case in CASES:
            for ending in (".nii.gz",) if name.startswith("gt") else (".b2nd", "_seg.b2nd", ".pkl"):
                (folder / name / f"{case}{ending}").touch()
    return folder


def write_splits(folder: Path, splits: list) -> None:
    (folder / "splits_final.json").write_text(json.dumps(splits))


def test_whole_splits_are_read(tmp_path):
    write_splits(tmp_path, SPLITS)
    assert check_splits(tmp_path) == check_splits(tmp_path / "splits_final.json", CASES) == SPLITS
    (tmp_path / "splits_final.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"splits_final\.json"):
        check_splits(tmp_path)


@pytest.mark.parametrize(
    "text",
    ["[]", '{"train": ["a"], "val": ["b"]}', '[["a"]]', '[{"train": "abc", "val": ["b"]}]', '[{"train": ["a"], "val": []}]',
     '[{"train": ["a", 3], "val": ["b"]}]'],
)  # fmt: skip
def test_another_form_is_refused(tmp_path, text):
    (tmp_path / "splits_final.json").write_text(text)
    with pytest.raises(ValueError, match="must be a list of folds"):
        check_splits(tmp_path)


def test_every_fault_is_in_one_message(tmp_path):
    folds = [
        {"train": ["a", "a", "x"], "val": ["b", "d"]},
        {"train": ["a", "c"], "val": ["b", "c", "d"]},
    ]
    write_splits(tmp_path, folds)
    with pytest.raises(ValueError, match="has faults") as error:
        check_splits(tmp_path, ids=["a", "b", "c", "d"])
    assert str(error.value).splitlines()[1:] == [
        "- fold 0: cases more than once: 'a'",
        "- fold 0: cases that are not in the given ids: 'x'",
        "- fold 0: cases of the given ids that it leaves out: 'c'",
        "- fold 1: cases more than once: 'c'",
    ]


def test_cases_are_those_that_lie_preprocessed_beside_the_file(tmp_path):
    folder = preprocessed(tmp_path / "Dataset001_Test")
    write_splits(folder, SPLITS)
    assert check_splits(folder) == SPLITS
    (folder / "nnUNetPlans_3d_fullres" / "case_004.b2nd").unlink()
    (folder / "nnUNetPlans_2d" / "case_011.b2nd").touch()
    with pytest.raises(ValueError, match="faults") as error:
        check_splits(folder)
    assert "fold 0: cases that are not in nnUNetPlans_3d_fullres: 'case_004'" in str(error.value)
    assert "fold 0: cases of nnUNetPlans_2d that it leaves out: 'case_011'" in str(error.value)
    # what the caller says counts more
    assert check_splits(folder, CASES) == SPLITS


def test_nnunets_own_splits_pass_the_check(tmp_path):
    crossval = pytest.importorskip("nnunetv2.utilities.crossval_split")
    files = pytest.importorskip("batchgenerators.utilities.file_and_folder_operations")
    files.save_json(crossval.generate_crossval_split(CASES), str(tmp_path / "splits_final.json"))
    assert len(check_splits(preprocessed(tmp_path))) == 5
