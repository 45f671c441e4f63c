"""The cases of a training: checked before it starts, and fingerprinted for its record.

Files that are missing or damaged are reported here. nnU-Net's loaders would find them when a case
is first drawn, and nnU-Net's final validation after the last epoch.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Iterable, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import xxhash

from detaug.nnunet.compatibility import (
    FINAL_VALIDATION,
    GROUND_TRUTH,
    infer_dataset_class,
    is_nnunets_own,
)
from detaug.nnunet.loading.case_files import CaseFolder, check_present, listed_cases, some_of

logger = logging.getLogger("detaug")

#: Bytes that are compared at a file's beginning and end. To read whole files would take minutes at
#: every start, and compressed files rarely differ in the middle alone.
_EDGE = 64 * 1024
#: The ending of files that nnU-Net makes of its ``.npz`` when a training starts.
_UNPACKED = ".npy"


class Fold(NamedTuple):
    """The cases of a training.

    Attributes:
        training, validation: their names, in ascending order.
        fingerprints: name -> a fingerprint of the case's files. It is the same wherever these lie
            and whenever they were copied, and takes milliseconds.
    """

    training: list[str]
    validation: list[str]
    fingerprints: dict[str, str]


def checked_fold(trainer: Any) -> Fold:
    """Return the cases of a trainer's fold, after a look at their files.

    Cases in nnU-Net's format ``.b2nd`` are opened. Those in other formats are nnU-Net's to read:
    only their names are compared with the files that there are.

    Raises:
        FileNotFoundError: there are no preprocessed cases.
        ValueError: cases are missing or damaged, or the fold has none on one side.
    """
    folder = Path(trainer.preprocessed_dataset_folder)
    present = _present_cases(trainer, folder)
    _check_images(folder, present)

    # Only after the files are checked: without a split, nnU-Net makes one of the cases that it
    # finds, and keeps it.
    training, validation = trainer.do_split()
    training = sorted(map(str, training))
    validation = sorted(map(str, validation))
    _check_sides(trainer.fold, training=training, validation=validation)
    names = sorted({*training, *validation})
    previous = trainer.folder_with_segs_from_previous_stage
    if _are_compressed(folder):
        cases = CaseFolder(folder, names, previous)
        labels = trainer.label_manager
        annotated = None
        if labels.has_ignore_label:
            annotated = (-1, *labels.all_labels)
        cases.check(annotated)
        files = {name: cases.files(name) for name in names}
    else:
        check_present(folder, names, present)
        folders = [folder]
        if previous is not None:
            folders.append(Path(previous))
        files = _files_by_case(folders, names)
    fingerprints = {name: _fingerprint(files[name]) for name in names}
    return Fold(training, validation, fingerprints)


def _are_compressed(folder: Path) -> bool:
    """Return True if the cases are in ``.b2nd`` files, or if there are none at all."""
    if not folder.is_dir():
        return True
    return bool(listed_cases(folder)) or not any(folder.iterdir())


def _present_cases(trainer: Any, folder: Path) -> list[str]:
    """Return the cases in a folder, as nnU-Net lists them.

    Raises:
        FileNotFoundError: there are none.
    """
    # Other classes of data sets have files of their own: they list their cases themselves.
    if _are_compressed(folder):
        return CaseFolder(folder).identifiers
    kind = trainer.dataset_class or infer_dataset_class()(str(folder))
    return sorted(map(str, kind.get_identifiers(str(folder))))


def _check_images(folder: Path, present: Collection[str]) -> None:
    """Raise a ValueError where a case has properties and no image.

    nnU-Net knows cases by their images, and would split without such a case.
    """
    with_properties = {path.stem for path in folder.glob("*.pkl")}
    halves = sorted(with_properties - set(present))
    if halves:
        kind = " (.b2nd)" if _are_compressed(folder) else ""
        raise ValueError(
            f"{len(halves)} cases in {folder} have no image{kind}: {some_of(halves)}. Preprocess"
            " them again (nnUNetv2_preprocess), or remove what is left of them"
        )


def _check_sides(fold: Any, **sides: Sequence[str]) -> None:
    """Raise a ValueError if a fold has no cases on one of these sides (training, validation)."""
    for side, names in sides.items():
        if not names:
            raise ValueError(
                f"fold {fold} has no {side} cases: nnU-Net trains and validates in every epoch. "
                "Name at least one on each side of the fold in splits_final.json"
            )


def _files_by_case(folders: Iterable[Path], names: Sequence[str]) -> dict[str, list[str]]:
    """Return the files of each case in a format that detaug does not read.

    A case's files are called as the case, or as its segmentation, and have any ending.
    """
    files: dict[str, list[str]] = {name: [] for name in names}
    for folder in folders:
        # In one order: the fingerprint goes over the files as they come.
        for entry in sorted(os.scandir(folder), key=attrgetter("name")):
            if not entry.is_file() or entry.name.endswith(_UNPACKED):
                continue
            name = _case_of(entry.name, files)
            if name is not None:
                files[name].append(entry.path)
    return files


def _case_of(file_name: str, names: Collection[str]) -> str | None:
    """Return the case to which a file belongs; endings may have several dots, and names too."""
    stem = file_name
    while "." in stem:
        stem = stem.rpartition(".")[0]
        for name in (stem, stem.removesuffix("_seg")):
            if name in names:
                return name
    return None


def _fingerprint(files: Iterable[str]) -> str:
    """Return a fingerprint of the names of files, their sizes, and the bytes at their edges.

    Raises:
        OSError: a file cannot be read.
    """
    state = xxhash.xxh3_64()
    for file in map(Path, files):
        size = file.stat().st_size
        # With the name's length, so that no two lists of files are one text.
        state.update(f"{len(file.name)}:{file.name}:{size}".encode())
        with file.open("rb") as stream:
            state.update(stream.read(_EDGE))
            # A file shorter than two edges has been read as far as here; nothing is read twice.
            stream.seek(max(size - _EDGE, min(size, _EDGE)))
            state.update(stream.read(_EDGE))
    return state.hexdigest()


def check_ground_truth(trainer: Any, validation: Sequence[str]) -> None:
    """Look for the segmentations with which nnU-Net compares its final predictions.

    A trainer with a final validation of its own may need none: a warning is logged.

    Raises:
        FileNotFoundError: nnU-Net's own final validation would not find them, after all epochs.
    """
    folder = Path(trainer.preprocessed_dataset_folder_base, GROUND_TRUTH)
    ending = trainer.dataset_json["file_ending"]
    missing = [name for name in validation if not (folder / f"{name}{ending}").is_file()]
    if not missing:
        return
    message = (
        f"{len(missing)} of {len(validation)} validation cases have no segmentation ({ending}) in "
        f"{folder}: {some_of(missing)}. nnU-Net's final validation reads them: copy the folder "
        "from where the data set was preprocessed, or preprocess it again (nnUNetv2_preprocess)"
    )
    # The class whose final validation runs; detaug's mixin only calls it.
    owner = next(
        base
        for base in type(trainer).__mro__
        if FINAL_VALIDATION in vars(base) and not base.__module__.startswith("detaug.")
    )
    if is_nnunets_own(owner):
        raise FileNotFoundError(message)
    logger.warning("%s", message)
