"""nnU-Net's ``splits_final.json``, checked before a training finds out.

The file is a list of folds, each ``{"train": [case, ...], "val": [case, ...]}``; fold f of a training is entry f. It lies in
``nnUNet_preprocessed/DatasetXXX_Name``. nnU-Net takes it as it is: a case that is misspelt fails in a worker when it is
first drawn, one on both sides is a line in a log, and a fold beyond the end silently becomes a random 80:20 split.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from detaug.nnunet.loading.case_files import listed_cases

FILE_NAME = "splits_final.json"

#: One fold, as the file has it: its cases under "train" and "val".
Fold = dict[str, list[str]]


def check_splits(path_or_folder: str | os.PathLike[str], ids: Iterable[str] | None = None) -> list[Fold]:
    """Read ``splits_final.json`` and look for everything that would go wrong with it in a training.

    Args:
        path_or_folder: the file, or the folder it lies in.
        ids: the cases that there are. Left out, they are those that lie preprocessed beside the file, in each folder
            of a configuration (``nnUNetPlans_3d_fullres`` and the like), as nnU-Net itself lists them: ``*.b2nd``
            without ``*_seg.b2nd``, or ``*.npz``. Where there is no such folder, only the file is checked.

    Returns:
        The folds, with the cases in ascending order.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: everything that is wrong, in one message: not JSON, or of another form; no folds; a side that is
            empty; a case twice in a list or on both sides; a case that does not exist, or that a fold leaves out.
            Whether validation lists overlap between folds is not judged: repeated random splits do.
    """
    path = Path(path_or_folder)
    if path.is_dir():
        path = path / FILE_NAME
    if not path.is_file():
        raise FileNotFoundError(f"there is no {path}: nnU-Net writes one when it first trains")
    try:
        folds = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from None
    faults = _faults_of(folds)
    if isinstance(folds, list):
        for where, known in _known_cases(path.parent, ids):
            for number, fold in enumerate(folds):
                faults += _unmatched(number, fold, where, known)
    if faults:
        raise ValueError(f"{path} has {len(faults)} fault{'s' * (len(faults) > 1)}:\n{_bulleted(faults)}")
    return [{side: sorted(fold[side]) for side in ("train", "val")} for fold in folds]


def preprocessed_cases(folder: str | os.PathLike[str]) -> dict[str, list[str]]:
    """Configuration folder → its cases in ascending order, for a folder ``nnUNet_preprocessed/DatasetXXX_Name``.

    As nnU-Net itself lists them; folders without cases (``gt_segmentations``) are left out.
    """
    found = {}
    for configuration in sorted(entry for entry in Path(folder).iterdir() if entry.is_dir()):
        compressed, zipped = listed_cases(configuration)
        if compressed or zipped:
            found[configuration.name] = compressed or zipped
    return found


def _known_cases(folder: Path, ids: Iterable[str] | None) -> list[tuple[str, set[Any]]]:
    if ids is not None:
        return [("the given ids", set(ids))]
    return [(name, set(cases)) for name, cases in preprocessed_cases(folder).items()]


def _faults_of(folds: Any) -> list[str]:
    if not isinstance(folds, list):
        return [f"it must be a list of folds, not {type(folds).__name__}"]
    if not folds:
        return ["it has no folds"]
    return [f"fold {number}: {fault}" for number, fold in enumerate(folds) for fault in _faults_of_fold(fold)]


def _faults_of_fold(fold: Any) -> list[str]:
    if not isinstance(fold, dict):
        return [f'it must be {{"train": [...], "val": [...]}}, not {type(fold).__name__}']
    faults = []
    for side in ("train", "val"):
        cases = fold.get(side)
        if cases is None:
            faults.append(f"it has no {side!r}, only {sorted(map(str, fold))}")
        elif not isinstance(cases, list):
            faults.append(f"{side!r} must be a list of cases, not {type(cases).__name__}")
        elif not cases:
            faults.append(f"{side!r} is empty")
        elif not all(isinstance(case, str) for case in cases):
            others = [case for case in cases if not isinstance(case, str)]
            faults.append(f"{side!r} has cases that are no strings: {_shown(others)}")
        else:
            twice = sorted(case for case, count in Counter(cases).items() if count > 1)
            if twice:
                faults.append(f"{side!r} has cases more than once: {_shown(twice)}")
    both = sorted(_cases(fold, "train") & _cases(fold, "val"))
    if both:
        faults.append(f"cases are in 'train' and in 'val': {_shown(both)}")
    return faults


def _unmatched(number: int, fold: Any, where: str, known: set[Any]) -> list[str]:
    split = _cases(fold, "train") | _cases(fold, "val")
    faults = []
    if split - known:
        faults.append(f"fold {number}: cases that are not in {where}: {_shown(sorted(split - known))}")
    if split and known - split:
        faults.append(f"fold {number}: cases of {where} that it leaves out: {_shown(sorted(known - split))}")
    return faults


def _cases(fold: Any, side: str) -> set[str]:
    cases = fold.get(side) if isinstance(fold, dict) else None
    return {case for case in cases if isinstance(case, str)} if isinstance(cases, list) else set()


def _shown(items: Sequence[Any]) -> str:
    """The first five."""
    more = f" and {len(items) - 5} more" if len(items) > 5 else ""
    return ", ".join(repr(item) for item in items[:5]) + more


def _bulleted(faults: Sequence[str]) -> str:
    return "\n".join(f"- {fault}" for fault in faults)
