"""Files of preprocessed cases, opened: which stay open, and errors of reading that say which file of which case it was."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from pathlib import Path
from traceback import walk_tb
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class RecentlyUsed(Generic[K, T]):
    """What was loaded, the least recently used of it forgotten when all of it weighs too much.

    These are kept per process and not per loader: what they remember never changes a batch.

    Args:
        load: key -> (value, weight).
        limit: what all weights together may be.
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
    """Inside, a case's file is read; its name is that of the case.

    Raises:
        UnreadableCase: instead of what the library raises. FileNotFoundError: the file is not there.
    """
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


class NamesCases:
    """`generate_train_batch` of nnU-Net's loader, whose errors say at which case they came.

    Args:
        loader: any of batchgenerators' kind, with the names of its cases as `indices`.
    """

    def __init__(self, loader: Any) -> None:
        self._loader, self._make = loader, loader.generate_train_batch

    def __call__(self) -> Any:
        try:
            return self._make()
        except Exception as error:
            names = set(map(str, self._loader.indices))
            for frame, _ in walk_tb(error.__traceback__):
                found = [each for each in frame.f_locals.values() if isinstance(each, str) and each in names]
                if found and frame.f_locals.get("self") is self._loader:
                    error.add_note(f"while a patch of case {found[-1]} was made")
                    break
            raise


# --- compressed arrays, of which a slice decompresses the blocks that it touches ----------------------------------------------

#: How many compressed files a process keeps open: opening one takes as long as reading a plane of it.
OPEN_FILES = 64


def _load(file: str) -> tuple[Any, int]:
    import blosc2

    if not os.path.isfile(file):
        raise FileNotFoundError(f"there is no {file}")
    mapped = {} if os.name == "nt" else {"mmap_mode": "r"}
    with reading(file):
        return blosc2.open(urlpath=file, mode="r", dparams={"nthreads": 1}, **mapped), 1


#: By their paths.
compressed_files: RecentlyUsed[str, Any] = RecentlyUsed(_load, OPEN_FILES)
