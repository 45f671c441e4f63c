"""nnU-Net's preprocessed cases on disk: what is in a folder, and each case's arrays and places of classes.

Arrays are opened, not read: compressed ones (``.b2nd``) give any box of voxels by decompressing the blocks it touches,
``.npy`` files are mapped. A ``.npz`` that is not unpacked has to be read as a whole; nnU-Net unpacks them when a training
starts.
"""

from __future__ import annotations

import os
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import xxhash

#: What the places of classes of recently used cases may take in a process, in bytes.
PLACES_MEMORY = 128 * 2**20

#: How many compressed files a process keeps open: opening one takes as long as reading a plane of it.
OPEN_FILES = 64

_EDGE = 64 * 1024

T = TypeVar("T")


@dataclass(frozen=True)
class Case:
    """One preprocessed case, opened.

    Attributes:
        image: (C, X, Y, Z), an array or something that is sliced like one.
        segmentation: (1, X, Y, Z).
        previous_stage: (X, Y, Z) labels of a cascade's first stage, or None.
        class_locations: class or region -> (N, 4) unsigned integers; None where the properties have none.
    """

    image: Any
    segmentation: Any
    previous_stage: Any
    class_locations: dict[Any, np.ndarray] | None


class CaseFolder:
    """A folder as ``nnUNetv2_preprocess`` leaves it.

    Args:
        folder: that of one configuration (``nnUNetPlans_3d_fullres``).
        identifiers: names of the cases to use; None: all there are. They are sorted.
        previous_stage: a folder with the previous stage's segmentations, for a cascade.

    Raises:
        FileNotFoundError: there is no such folder, or it has no cases.
        ValueError: both compressed and ``.npz`` cases are in it, or identifiers without files.
    """

    def __init__(
        self, folder: str | Path, identifiers: Sequence[str] | None = None, previous_stage: str | Path | None = None
    ) -> None:
        self.folder = Path(folder)
        self._text = str(self.folder / "_")[:-1]
        self.previous_stage = Path(previous_stage) if previous_stage is not None else None
        self.ending, present = _cases_in(self.folder)
        self.identifiers = sorted(map(str, identifiers)) if identifiers is not None else present
        missing = sorted(set(self.identifiers) - set(present))
        if missing:
            raise ValueError(
                f"{len(missing)} of {len(self.identifiers)} cases are not in {self.folder}: {_some(missing)}. Preprocess the "
                "data set again, or correct splits_final.json"
            )

    def open(self, identifier: str) -> Case:
        """A case's arrays, opened for reading, and the places of its classes."""
        if self.ending == "b2nd":
            # strings: a Path takes longer to make than a plane takes to be found in its file
            image = _compressed.get(f"{self._text}{identifier}.b2nd")
            segmentation = _compressed.get(f"{self._text}{identifier}_seg.b2nd")
        else:
            image = _open_numpy(self.folder, identifier, "", "data")
            segmentation = _open_numpy(self.folder, identifier, "_seg", "seg")
        return Case(image, segmentation, self._open_previous(identifier), self.class_locations(identifier))

    def _open_previous(self, identifier: str) -> Any:
        if self.previous_stage is None:
            return None
        if self.ending == "b2nd":
            return _compressed.get(str(self.previous_stage / f"{identifier}.b2nd"))
        return _open_numpy(self.previous_stage, identifier, "", "seg")

    def class_locations(self, identifier: str) -> dict[Any, np.ndarray] | None:
        """From the case's properties, which are read once per process as long as memory for them lasts."""
        return _places.get(f"{self._text}{identifier}.pkl")

    def files(self, identifier: str) -> list[Path]:
        """All files of a case that a training reads."""
        names = [f"{identifier}.b2nd", f"{identifier}_seg.b2nd"] if self.ending == "b2nd" else [f"{identifier}.npz"]
        found = [self.folder / name for name in (*names, f"{identifier}.pkl")]
        if self.previous_stage is not None:
            found.append(self.previous_stage / f"{identifier}.{self.ending}")
        return found

    def check(self, channels: int | None = None) -> None:
        """Look at every case once: that its files are there and whole, and that its arrays fit each other.

        Args:
            channels: how many channels every image must have; None: as the first one.

        Raises:
            ValueError: names every faulty case and what is wrong with it.
        """
        faults = []
        for identifier in self.identifiers:
            try:
                channels = self._check_case(identifier, channels)
            except (
                ValueError,
                OSError,
                EOFError,
                RuntimeError,
                KeyError,
                pickle.UnpicklingError,
                zipfile.BadZipFile,
            ) as error:
                faults.append(f"{identifier}: {error}")
        if faults:
            raise ValueError(
                f"{len(faults)} of {len(self.identifiers)} cases in {self.folder} cannot be used. Preprocess them again "
                "(nnUNetv2_preprocess):\n  " + "\n  ".join(faults)
            )

    def check_images(self) -> None:
        """That every case in the folder has its image: nnU-Net knows cases by their images, and splits without the others.

        Raises:
            ValueError: names those that have properties and no image.
        """
        images = {path.stem for path in self.folder.glob(f"*.{self.ending}")}
        halves = sorted({path.stem for path in self.folder.glob("*.pkl")} - images)
        if halves:
            raise ValueError(
                f"{len(halves)} cases in {self.folder} have no image (.{self.ending}): {_some(halves)}. Preprocess them "
                "again (nnUNetv2_preprocess), or remove what is left of them"
            )

    def _check_case(self, identifier: str, channels: int | None) -> int:
        absent = [file for file in self.files(identifier) if not file.is_file()]
        if absent:
            advice = ""
            if all(file.parent == self.previous_stage for file in absent):
                advice = (
                    " (predictions of the previous stage: train that stage first, in all folds, with the same trainer)"
                )
            raise FileNotFoundError(f"missing {_some([str(file) for file in absent])}{advice}")
        for file in self.files(identifier):
            _places.forget(str(file))
            _compressed.forget(str(file))
        case = self.open(identifier)
        shape = tuple(int(n) for n in case.image.shape)
        if len(shape) != 4 or (channels is not None and shape[0] != channels):
            wanted = "C" if channels is None else channels
            raise ValueError(f"the image must be ({wanted}, X, Y, Z), it is {shape}")
        if tuple(case.segmentation.shape) != (1, *shape[1:]):
            raise ValueError(f"the segmentation is {tuple(case.segmentation.shape)}, the image {shape}")
        if case.previous_stage is not None and tuple(case.previous_stage.shape)[-3:] != shape[1:]:
            raise ValueError(
                f"the previous stage's segmentation is {tuple(case.previous_stage.shape)}, the image {shape}"
            )
        # the last voxel: a file that was cut short has none
        for array in (case.image, case.segmentation, case.previous_stage):
            if array is not None:
                np.asarray(array[tuple(slice(n - 1, n) for n in array.shape)])
        return shape[0]

    def contents(self) -> str:
        """A short fingerprint of the cases: their names, and sizes and edges (64 kB each) of their files.

        It is the same wherever the folder lies and whenever it was copied, and takes milliseconds per case.
        """
        state = xxhash.xxh3_128()
        for identifier in self.identifiers:
            state.update(f"{len(identifier)}:{identifier}".encode())
            for file in self.files(identifier):
                _add_edges(state, file)
        return state.hexdigest()


class _Recent(Generic[T]):
    """What was loaded from files, the least recently used of it forgotten when all of it weighs too much.

    These are kept per process and not per loader: what they remember never changes a batch.
    """

    def __init__(self, load: Callable[[str], tuple[T, int]], limit: int) -> None:
        self._load, self._limit = load, limit
        self._known: OrderedDict[str, tuple[T, int]] = OrderedDict()
        self._weight = 0

    def get(self, file: str) -> T:
        if file in self._known:
            self._known.move_to_end(file)
            return self._known[file][0]
        value, weight = self._load(file)
        self._known[file] = (value, weight)
        self._weight += weight
        while self._weight > self._limit and len(self._known) > 1:
            _, (_, freed) = self._known.popitem(last=False)
            self._weight -= freed
        return value

    def forget(self, file: str) -> None:
        """Load it again on the next use."""
        _, weight = self._known.pop(file, (None, 0))
        self._weight -= weight


def _load_places(file: str) -> tuple[dict[Any, np.ndarray] | None, int]:
    with open(file, "rb") as stream:
        properties = pickle.load(stream)
    locations = properties.get("class_locations")
    if locations is None:
        return None, 0
    compact = {key: _compact(places) for key, places in locations.items()}
    return compact, sum(places.nbytes for places in compact.values())


def _load_compressed(file: str) -> tuple[Any, int]:
    import blosc2

    if not os.path.isfile(file):
        raise FileNotFoundError(f"there is no {file}")
    mapped = {} if os.name == "nt" else {"mmap_mode": "r"}
    return blosc2.open(urlpath=file, mode="r", dparams={"nthreads": 1}, **mapped), 1


_places = _Recent(_load_places, PLACES_MEMORY)
_compressed = _Recent(_load_compressed, OPEN_FILES)


def _compact(places: Any) -> np.ndarray:
    """Voxel indices in as few bytes as hold them."""
    array = np.asarray(places)
    if array.size == 0:
        return np.empty((0, 4), np.uint16)
    return array.astype(np.min_scalar_type(int(array.max())))


def listed_cases(folder: Path) -> tuple[list[str], list[str]]:
    """The compressed cases of a folder, and those in ``.npz`` files, in ascending order.

    As nnunetv2's ``nnUNetDatasetBlosc2.get_identifiers`` and ``nnUNetDatasetNumpy.get_identifiers`` list them.
    """
    files = [name.rpartition(".") for name in os.listdir(folder)]
    compressed = [stem for stem, _, ending in files if ending == "b2nd" and not stem.endswith("_seg")]
    return sorted(compressed), sorted(stem for stem, _, ending in files if ending == "npz")


def _cases_in(folder: Path) -> tuple[str, list[str]]:
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {folder}: run nnUNetv2_preprocess, or check nnUNet_preprocessed")
    compressed, zipped = listed_cases(folder)
    if compressed and zipped:
        raise ValueError(f"{folder} has cases of two kinds, .b2nd ({len(compressed)}) and .npz ({len(zipped)})")
    if not compressed and not zipped:
        raise FileNotFoundError(f"{folder} has no preprocessed cases (.b2nd or .npz): run nnUNetv2_preprocess")
    return ("b2nd", compressed) if compressed else ("npz", zipped)


def _open_numpy(folder: Path, identifier: str, suffix: str, name: str) -> Any:
    unpacked = folder / f"{identifier}{suffix}.npy"
    if unpacked.is_file():
        return np.load(unpacked, mmap_mode="r")
    with np.load(folder / f"{identifier}.npz") as archive:
        return archive[name]


def _add_edges(state: Any, file: Path) -> None:
    size = file.stat().st_size
    state.update(f"{file.name}:{size}".encode())
    with open(file, "rb") as stream:
        state.update(stream.read(_EDGE))
        if size > 2 * _EDGE:
            stream.seek(size - _EDGE)
        state.update(stream.read(_EDGE))


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
