"""nnU-Net's ``splits_final.json``, checked before a training finds out.

It lies in ``nnUNet_preprocessed/DatasetXXX_Name``; fold f of a training is entry f of it. nnU-Net takes it as it is: a case that
is misspelt fails in a worker when it is first drawn, one on both sides is a line in a log, and a fold beyond the end silently
becomes a random 80:20 split.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from detaug.nnunet.loading.case_files import listed_cases

SIDES = ("train", "val")
#: One fold, as the file has it: its cases by side.
Fold = dict[str, list[str]]


def check_splits(
    path_or_folder: str | os.PathLike[str], ids: Iterable[str] | None = None
) -> list[Fold]:
    """Read ``splits_final.json`` and look for everything that would go wrong with it in a training.

    Args:
        path_or_folder: the file, or the folder it lies in.
        ids: the cases that there are. Left out, they are those that lie preprocessed beside the file, in each folder
            of a configuration (``nnUNetPlans_3d_fullres`` and the like), as nnU-Net itself lists them. Where there is no
            such folder, only the file is checked.

    Returns:
        The folds, ``{"train": [case, ...], "val": [case, ...]}``, with the cases in ascending order.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not JSON, or of another form; or all of these faults, in one message: a case more than once in a
            fold, one that does not exist, one that a fold leaves out. Whether validation lists overlap between folds is not
            judged: repeated random splits do.
    """
    path = Path(path_or_folder)
    if path.is_dir():
        path = path / "splits_final.json"
    try:
        folds = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from None
    if not isinstance(folds, list) or not folds or not all(map(_is_fold, folds)):
        raise ValueError(
            f'{path} must be a list of folds {{"train": [case, ...], "val": [case, ...]}}, no side empty'
        )
    if ids is not None:
        known = {"the given ids": set(ids)}
    else:
        folders = sorted(each for each in path.parent.iterdir() if each.is_dir())
        known = {each.name: set(cases) for each in folders if (cases := listed_cases(each))}
    faults = [
        f"- fold {number}: {what}: {', '.join(map(repr, sorted(cases)))}"
        for number, fold in enumerate(folds)
        for what, cases in _faults(Counter(fold["train"] + fold["val"]), known)
        if cases
    ]
    if faults:
        raise ValueError("\n".join([f"{path} has faults:", *faults]))
    return [{side: sorted(fold[side]) for side in SIDES} for fold in folds]


def _is_fold(fold: Any) -> bool:
    sides = [fold.get(side) for side in SIDES] if isinstance(fold, dict) else [None]
    return all(
        isinstance(side, list) and side and all(isinstance(each, str) for each in side)
        for side in sides
    )


def _faults(
    counts: Counter[str], known: dict[str, set[str]]
) -> Iterable[tuple[str, Iterable[str]]]:
    yield "cases more than once", [case for case, count in counts.items() if count > 1]
    for where, cases in known.items():
        yield f"cases that are not in {where}", counts.keys() - cases
        yield f"cases of {where} that it leaves out", cases - counts.keys()
