"""nnU-Net's preprocessed cases on disk: the cases of a folder, their arrays and places of classes.

Arrays (``.b2nd``) are opened, not read: they give any box of voxels by decompressing the blocks it
touches.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

#: Compressed files that a process keeps open: opening one takes as long as reading a plane of it.
OPEN_FILES = 64
#: Cases whose places of classes a process keeps: some 100 kB each.
KNOWN_PLACES = 512
_AGAIN = "preprocess it again (nnUNetv2_preprocess)"


class Case(NamedTuple):
    """One preprocessed case, opened.

    Attributes:
        identifier: its name.
        image, segmentation: ``blosc2.NDArray``s (C, X, Y, Z) and (1, X, Y, Z).
        previous_stage: (X, Y, Z) labels of a cascade's first stage, or None.
        class_locations: class or region -> (N, 4) integers; None where the properties have none.
    """

    identifier: str
    image: Any
    segmentation: Any
    previous_stage: Any
    class_locations: dict[Any, np.ndarray] | None

    def locations(self) -> dict[Any, np.ndarray]:
        """Return `class_locations`.

        Raises:
            ValueError: the properties have none.
        """
        if self.class_locations is None:
            raise ValueError(
                f"case {self.identifier}: its properties have no class_locations, which patches "
                f"with foreground are drawn from: {_AGAIN}"
            )
        return self.class_locations

    def annotated_locations(self, annotated: tuple[int, ...]) -> np.ndarray:
        """Return the voxels of the case that are annotated, (N, 4) integers.

        Args:
            annotated: the key under which nnU-Net's preprocessing collects them where there is an
                ignore label: -1 and all other labels.

        Raises:
            ValueError: the properties have no such key.
        """
        locations = self.locations()
        if annotated not in locations:
            key = tuple(int(label) for label in annotated)
            raise ValueError(
                f"case {self.identifier}: its properties have no class_locations of the annotated "
                f"voxels {key}: labels were changed, or an ignore label was added, after it "
                f"was preprocessed; {_AGAIN}"
            )
        return locations[annotated]


class CaseFolder:
    """A folder of one configuration (``nnUNetPlans_3d_fullres``), as nnUNetv2_preprocess leaves it.

    Args:
        identifiers: names of the cases to use; None: all there are. They are sorted.
        previous_stage: a folder with the previous stage's segmentations, for a cascade.

    Raises:
        FileNotFoundError: there is no such folder, or it has no cases.
        ValueError: there are identifiers without files.
    """

    def __init__(
        self,
        folder: str | Path,
        identifiers: Sequence[str] | None = None,
        previous_stage: str | Path | None = None,
    ) -> None:
        self.folder = Path(folder)
        self.previous_stage: Path | None = None
        if previous_stage is not None:
            self.previous_stage = Path(previous_stage)
        present: list[str] = []
        if self.folder.is_dir():
            present = listed_cases(self.folder)
        if not present:
            raise FileNotFoundError(
                f"there are no preprocessed cases (.b2nd) in {self.folder}: run nnUNetv2_preprocess"
                " of nnU-Net 2.8, or check nnUNet_preprocessed"
            )
        self.identifiers = present
        if identifiers is not None:
            self.identifiers = sorted(map(str, identifiers))
        # Before a training begins: a case that is missing would stop it when it is first drawn.
        check_present(self.folder, self.identifiers, present)

    def open(self, identifier: str) -> Case:
        """Return a case's arrays, opened for reading, and the places of its classes."""
        image, segmentation, properties, *previous = self.files(identifier)
        previous_stage = None
        if previous:
            previous_stage = opened(previous[0])
        locations = places_of_classes(properties)
        return Case(identifier, opened(image), opened(segmentation), previous_stage, locations)

    def files(self, identifier: str) -> list[str]:
        """Return all files of a case that a training reads.

        They are no `Path` objects, for these take 3 % of a 2-D batch to make.
        """
        files = [f"{self.folder}/{identifier}{ending}" for ending in (".b2nd", "_seg.b2nd", ".pkl")]
        if self.previous_stage is not None:
            files.append(f"{self.previous_stage}/{identifier}.b2nd")
        return files

    def check(self, annotated: tuple[int, ...] | None = None) -> None:
        """Raise unless the files of every case are there and whole.

        Args:
            annotated: where there is an ignore label, the key of the annotated voxels.

        Raises:
            ValueError: cases are faulty; the message names each, and what is wrong.
        """
        # The files may have changed since this process opened them.
        opened.cache_clear()
        places_of_classes.cache_clear()
        faults = []
        # All faults are collected, so that a data set can be mended in one go.
        for identifier in self.identifiers:
            try:
                self._check_case(identifier, annotated)
            except (ValueError, OSError, RuntimeError) as error:
                name = f"case {identifier}: "
                faults.append(f"{identifier}: {str(error).removeprefix(name)}")
        if faults:
            raise ValueError(
                f"{len(faults)} of {len(self.identifiers)} cases in {self.folder} cannot be used."
                " Preprocess them again (nnUNetv2_preprocess):\n  " + "\n  ".join(faults)
            )

    def _check_case(self, identifier: str, annotated: tuple[int, ...] | None) -> None:
        """Raise unless the files of a case are there and whole."""
        for file in map(Path, self.files(identifier)):
            if not file.is_file():
                raise self._missing(file)
        # Opening reads each file's header and the properties.
        case = self.open(identifier)
        for array in (case.image, case.segmentation, case.previous_stage):
            if array is None:
                continue
            if array.shape[-3:] != case.image.shape[-3:]:
                # It was predicted for another preprocessing of the case.
                raise ValueError(
                    f"the previous stage's segmentation is {array.shape}, the image"
                    f" {case.image.shape}"
                )
            # Read the last voxel: a file that was cut short has none.
            last_voxel = tuple(slice(n - 1, n) for n in array.shape)
            np.asarray(array[last_voxel])
        if annotated is not None:
            case.annotated_locations(annotated)

    def _missing(self, file: Path) -> FileNotFoundError:
        """Return the error for a file that is missing."""
        if file.parent != self.previous_stage:
            return FileNotFoundError(f"missing {file}")
        return FileNotFoundError(
            f"missing {file} (predicted by the previous stage: train that stage first, in all"
            " folds, with the same trainer)"
        )


def check_present(folder: Path, names: Sequence[str], present: Collection[str]) -> None:
    """Raise a ValueError if cases have no files in a folder."""
    missing = sorted(set(names) - set(present))
    if missing:
        raise ValueError(
            f"{len(missing)} of {len(names)} cases are not in {folder}: {some_of(missing)}."
            " Preprocess the data set again, or correct splits_final.json"
        )


class UnreadableCase(OSError):
    """A file of a preprocessed case cannot be read; the message names both."""


@contextmanager
def reading(file: str | Path) -> Iterator[None]:
    """Read a case's file inside the block.

    Raises:
        UnreadableCase: the library could not; the message names case and file.
    """
    try:
        yield
    except (FileNotFoundError, UnreadableCase, MemoryError):
        # These errors say what is wrong, and it is not that bytes are damaged.
        raise
    except Exception as error:
        # Damaged bytes lead blosc2, pickle, NumPy and zlib to errors of any kind.
        case = Path(file).name.partition(".")[0].removesuffix("_seg")
        raise UnreadableCase(
            f"case {case}: {file} cannot be read ({type(error).__name__}: {error}). If its bytes"
            " are damaged, preprocess the case again (nnUNetv2_preprocess) or restore the file,"
            " and continue the training from its last checkpoint"
        ) from error


@lru_cache(OPEN_FILES)
def opened(file: str) -> Any:
    """Return a compressed array, a ``blosc2.NDArray``.

    No batch depends on which arrays are open in a process.
    """
    import blosc2

    if not os.path.isfile(file):
        raise FileNotFoundError(f"there is no {file}")
    # As nnU-Net opens them: mapping fails on Windows (nnU-Net's issue 2723).
    mapped = {} if os.name == "nt" else {"mmap_mode": "r"}
    with reading(file):
        # One thread: every worker has a core, and blosc2's own threads would compete for it.
        return blosc2.open(urlpath=file, mode="r", dparams={"nthreads": 1}, **mapped)


@lru_cache(KNOWN_PLACES)
def places_of_classes(file: str) -> dict[Any, np.ndarray] | None:
    """Return the voxel indices of each class, in as few bytes as hold them.

    Reading them takes as long as augmenting a plane.
    """
    # The rest of the properties is dropped: a process keeps those of hundreds of cases.
    with open(file, "rb") as stream, reading(file):
        locations = pickle.load(stream).get("class_locations")
    if locations is None:
        return None
    return {label: _compact(np.asarray(voxels)) for label, voxels in locations.items()}


def _compact(voxels: np.ndarray) -> np.ndarray:
    """Return indices in the smallest type that holds them."""
    if not voxels.size:
        return np.empty((0, 4), np.uint16)
    return voxels.astype(np.min_scalar_type(int(voxels.max())))


def listed_cases(folder: Path) -> list[str]:
    """Return the cases of a folder in ascending order.

    They are those that nnunetv2's ``nnUNetDatasetBlosc2.get_identifiers`` lists.
    """
    files = [name for name in os.listdir(folder) if name.endswith(".b2nd")]
    return sorted(name.removesuffix(".b2nd") for name in files if not name.endswith("_seg.b2nd"))


def some_of(names: Sequence[str]) -> str:
    """Return the first few of these names, and the number of the others."""
    text = ", ".join(names[:5])
    if len(names) > 5:
        text += f" and {len(names) - 5} more"
    return text
