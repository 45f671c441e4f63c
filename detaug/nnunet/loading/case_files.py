"""nnU-Net's preprocessed cases on disk: what is in a folder, and each case's arrays and places of classes.

Arrays (``.b2nd``) are opened, not read: they give any box of voxels by decompressing the blocks it touches.
"""

from __future__ import annotations

import os
import pickle
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import xxhash

from detaug.ledger.receipt import sha256_of
from detaug.nnunet.compatibility import switched_on

#: Set to 1, a training's data are known by all bytes of their files.
HASH_VARIABLE = "DETAUG_HASH_DATA"
#: With what a fingerprint of such data begins.
HASHED = "sha256:"
#: What the places of classes of recently used cases may take in a process, in bytes.
PLACES_MEMORY = 128 * 2**20
#: How many compressed files a process keeps open: opening one takes as long as reading a plane of it.
OPEN_FILES = 64
#: Of a file's beginning and of its end, so many bytes tell its content from another.
_EDGE = 64 * 1024


K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


@dataclass(frozen=True)
class Case:
    """One preprocessed case, opened.

    Attributes:
        image, segmentation: ``blosc2.NDArray``s (C, X, Y, Z) and (1, X, Y, Z).
        previous_stage: (X, Y, Z) labels of a cascade's first stage, or None.
        class_locations: class or region -> (N, 4) unsigned integers; None where the properties have none.
    """

    image: Any
    segmentation: Any
    previous_stage: Any
    class_locations: dict[Any, np.ndarray] | None


class CaseFolder:
    """A folder of one configuration (``nnUNetPlans_3d_fullres``) as ``nnUNetv2_preprocess`` leaves it.

    Args:
        identifiers: names of the cases to use; None: all there are. They are sorted.
        previous_stage: a folder with the previous stage's segmentations, for a cascade.

    Raises:
        FileNotFoundError: there is no such folder, or it has no cases.
        ValueError: there are identifiers without files.
    """

    def __init__(
        self, folder: str | Path, identifiers: Sequence[str] | None = None, previous_stage: str | Path | None = None
    ) -> None:
        self.folder = Path(folder)
        self.previous_stage = Path(previous_stage) if previous_stage is not None else None
        present = listed_cases(self.folder) if self.folder.is_dir() else []
        if not present:
            raise FileNotFoundError(
                f"there are no preprocessed cases (.b2nd) in {self.folder}: run nnUNetv2_preprocess of nnU-Net 2.8, or check "
                "nnUNet_preprocessed"
            )
        self.identifiers = sorted(map(str, identifiers)) if identifiers is not None else present
        missing = sorted(set(self.identifiers) - set(present))
        if missing:
            raise ValueError(
                f"{len(missing)} of {len(self.identifiers)} cases are not in {self.folder}: {_some(missing)}. Preprocess the "
                "data set again, or correct splits_final.json"
            )

    def open(self, identifier: str) -> Case:
        """A case's arrays, opened for reading, and the places of its classes, which are read once as long as memory lasts."""
        image, segmentation, properties, *previous = map(str, self.files(identifier))
        before = compressed_files.get(previous[0]) if previous else None
        return Case(compressed_files.get(image), compressed_files.get(segmentation), before, _places.get(properties))

    def files(self, identifier: str) -> list[Path]:
        """All files of a case that a training reads."""
        found = [self.folder / f"{identifier}{ending}" for ending in (".b2nd", "_seg.b2nd", ".pkl")]
        if self.previous_stage is not None:
            found.append(self.previous_stage / f"{identifier}.b2nd")
        return found

    def check(self) -> None:
        """Look at every case once, that its files are there and whole; a ValueError names every faulty case and what is wrong."""
        faults = []
        for identifier in self.identifiers:
            try:
                self._check_case(identifier)
            except (ValueError, OSError, RuntimeError) as error:
                faults.append(f"{identifier}: {error}")
        if faults:
            raise ValueError(
                f"{len(faults)} of {len(self.identifiers)} cases in {self.folder} cannot be used. Preprocess them again "
                "(nnUNetv2_preprocess):\n  " + "\n  ".join(faults)
            )

    def check_images(self) -> None:
        """That every case in the folder has its image; else a ValueError names those that have properties and no image.

        nnU-Net knows cases by their images, and would split without these.
        """
        images = {path.stem for path in self.folder.glob("*.b2nd")}
        halves = sorted({path.stem for path in self.folder.glob("*.pkl")} - images)
        if halves:
            raise ValueError(
                f"{len(halves)} cases in {self.folder} have no image (.b2nd): {_some(halves)}. Preprocess them "
                "again (nnUNetv2_preprocess), or remove what is left of them"
            )

    def _check_case(self, identifier: str) -> None:
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
            compressed_files.forget(str(file))
        case = self.open(identifier)
        for array in (case.image, case.segmentation, case.previous_stage):
            if array is None:
                continue
            if array.shape[-3:] != case.image.shape[-3:]:  # predicted for another preprocessing of the case
                raise ValueError(f"the previous stage's segmentation is {array.shape}, the image {case.image.shape}")
            # the last voxel: a file that was cut short has none
            np.asarray(array[tuple(slice(n - 1, n) for n in array.shape)])

    def contents(self, like: str | None = None) -> str:
        """A short fingerprint of the cases: their names, and sizes and edges (64 kB each) of their files.

        It is the same wherever the folder lies and whenever it was copied, and takes milliseconds per case. Where
        ``DETAUG_HASH_DATA`` is 1 it is over all bytes of the files, and begins with ``sha256:``.

        Args:
            like: an earlier fingerprint, to be of the same kind; None: as the environment says.

        Raises:
            OSError: a file cannot be read. ValueError: ``DETAUG_HASH_DATA`` is neither 0 nor 1.
        """
        if switched_on(HASH_VARIABLE) if like is None else like.startswith(HASHED):
            lines = [f"{file.name} {sha256_of(file)}" for each in self.identifiers for file in self.files(each)]
            return HASHED + sha256("\n".join(lines).encode()).hexdigest()
        state = xxhash.xxh3_128()
        for identifier in self.identifiers:
            state.update(f"{len(identifier)}:{identifier}".encode())
            for file in self.files(identifier):
                size = file.stat().st_size
                state.update(f"{file.name}:{size}".encode())
                with open(file, "rb") as stream:
                    state.update(stream.read(_EDGE))
                    stream.seek(max(size - _EDGE, min(size, _EDGE)))
                    state.update(stream.read(_EDGE))
        return state.hexdigest()


class RecentlyUsed(Generic[K, T]):
    """What was loaded, the least recently used of it forgotten when all of it weighs more than `limit`.

    It is kept per process and not per loader: what is remembered never changes a batch. `load` gives (value, weight) of a key.
    """

    def __init__(self, load: Callable[[K], tuple[T, int]], limit: int) -> None:
        self._load, self._limit = load, limit
        self._known: OrderedDict[K, tuple[T, int]] = OrderedDict()
        self._weight = 0

    def get(self, key: K) -> T:
        if key in self._known:
            self._known.move_to_end(key)
            return self._known[key][0]
        value, weight = self._load(key)
        self._known[key] = (value, weight)
        self._weight += weight
        while self._weight > self._limit and len(self._known) > 1:
            _, (_, freed) = self._known.popitem(last=False)
            self._weight -= freed
        return value

    def forget(self, key: K) -> None:
        """Load it again on the next use."""
        _, weight = self._known.pop(key, (None, 0))
        self._weight -= weight


class UnreadableCase(OSError):
    """A file of a preprocessed case cannot be read; the message names both."""


@contextmanager
def reading(file: str | Path) -> Iterator[None]:
    """Inside, a case's file is read; what the library raises becomes an `UnreadableCase`, which names case and file."""
    try:
        yield
    except (FileNotFoundError, UnreadableCase, MemoryError):
        raise
    except Exception as error:  # damaged bytes lead blosc2, pickle, NumPy and zlib to errors of any kind
        case = Path(file).name.partition(".")[0].removesuffix("_seg")
        raise UnreadableCase(
            f"case {case}: {file} cannot be read ({type(error).__name__}: {error}). If its bytes are damaged, preprocess the "
            "case again (nnUNetv2_preprocess) or restore the file, and continue the training from its last checkpoint"
        ) from error


def _load(file: str) -> tuple[Any, int]:
    import blosc2

    if not os.path.isfile(file):
        raise FileNotFoundError(f"there is no {file}")
    mapped = {} if os.name == "nt" else {"mmap_mode": "r"}
    with reading(file):
        return blosc2.open(urlpath=file, mode="r", dparams={"nthreads": 1}, **mapped), 1


#: By their paths.
compressed_files: RecentlyUsed[str, Any] = RecentlyUsed(_load, OPEN_FILES)


def _load_places(file: str) -> tuple[dict[Any, np.ndarray] | None, int]:
    with open(file, "rb") as stream, reading(file):
        locations = pickle.load(stream).get("class_locations")
    if locations is None:
        return None, 0
    # in cases of nnU-Net 2.5 labels are NumPy's: compared with a tuple, they give an array
    compact = {key.item() if isinstance(key, np.generic) else key: _compact(each) for key, each in locations.items()}
    return compact, sum(places.nbytes for places in compact.values())


_places = RecentlyUsed(_load_places, PLACES_MEMORY)


def _compact(places: Any) -> np.ndarray:
    """Voxel indices in as few bytes as hold them."""
    array = np.asarray(places)
    if array.size == 0:
        return np.empty((0, 4), np.uint16)
    return array.astype(np.min_scalar_type(int(array.max())))


def listed_cases(folder: Path) -> list[str]:
    """The cases of a folder in ascending order, as nnunetv2's ``nnUNetDatasetBlosc2.get_identifiers`` lists them."""
    return sorted(name[:-5] for name in os.listdir(folder) if name.endswith(".b2nd") and not name.endswith("_seg.b2nd"))


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
