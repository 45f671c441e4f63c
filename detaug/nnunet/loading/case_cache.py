"""`CaseCache`: compressed cases, decompressed once per machine into a folder and mapped from there by all processes.

To read a patch of a compressed case is to decompress the blocks that hold it, for every patch again. An entry of the cache is a
``.npy`` file with a whole array. Its name is a digest of what it was made from: path, size, time of change (nanoseconds) and both
ends of the case's file, so that a case that changes has another entry. An entry gets its name when it is whole, and never
changes; nothing is removed from the folder but what killed writers have left.
"""

from __future__ import annotations

import logging
import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xxhash

from detaug.nnunet.loading.file_hashes import add_edges
from detaug.nnunet.loading.opened_files import RecentlyUsed, compressed_files
from detaug.reports.atomic_files import remove_unfinished, whole_file

CACHE_VARIABLE = "DETAUG_CASE_CACHE"

#: How many entries a process keeps mapped.
MAPPED = 64

_UNITS = {"MB": 10**6, "GB": 10**9, "TB": 10**12, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_IN_MEMORY = Path("/dev/shm")

logger = logging.getLogger("detaug")


@dataclass(frozen=True)
class CaseCache:
    """Where decompressed cases are kept, and how much of them.

    Attributes:
        folder: of the entries. All processes that name it share them.
        limit: bytes, beyond which nothing is added.
        private: refuse a folder that is another user's, or that others may write to.
    """

    folder: str
    limit: int
    private: bool = False

    @classmethod
    def from_text(cls, text: str) -> CaseCache:
        """A cache as ``DETAUG_CASE_CACHE`` describes it; its folder is made.

        Args:
            text: a size, and perhaps a place. ``20GB``: in a folder of this user's among the temporary files;
                ``500GiB:/scratch/cases``: in that folder; ``20GB:memory``: in ``/dev/shm``, until someone removes it.

        Raises:
            ValueError: no size with a unit (MB, GB, TB, MiB, GiB, TiB), a relative path, or a folder that cannot be used.
        """
        size, _, place = text.partition(":")
        found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]+)\s*", size)
        if found is None or found[2] not in _UNITS or float(found[1]) == 0:
            raise ValueError(
                f"a case cache is a size in {', '.join(_UNITS)}, and after a colon a folder or the word memory: 20GB, "
                f"20GB:/scratch/cases, 20GB:memory. Got {text!r}"
            )
        folder, private = _folder_named(place.strip())
        cache = cls(str(folder), int(float(found[1]) * _UNITS[found[2]]), private)
        try:
            cache.prepare()
            remove_unfinished(folder)
        except OSError as error:
            raise ValueError(f"the case cache {text!r} cannot be used: {error}") from None
        return cache

    def __str__(self) -> str:
        return f"up to {self.limit / 1e9:g} GB of decompressed cases in {self.folder}"

    def prepare(self) -> None:
        """Make the folder. Raises OSError where it cannot be used."""
        folder = Path(self.folder)
        folder.mkdir(mode=0o700 if self.private else 0o777, parents=not self.private, exist_ok=True)
        found = folder.lstat()
        if self.private and hasattr(os, "geteuid") and (found.st_uid != os.geteuid() or found.st_mode & 0o022):
            raise PermissionError(f"{folder} is not this user's alone")
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(f"{folder} cannot be written to")

    def array(self, file: str) -> np.ndarray | None:
        """What a compressed file holds, mapped read-only; decompressed first if no process has done so yet. None: it is not
        here, and there is no room for it."""
        return _mapped.get((self, file))

    def forget(self, file: str) -> None:
        """Look for the file's entry again on the next use."""
        _mapped.forget((self, file))


def chosen_cache(given: CaseCache | str | None) -> CaseCache | None:
    """The cache that an argument describes, else the environment's ``DETAUG_CASE_CACHE``; None where neither does.

    Raises:
        TypeError, ValueError: it cannot be used, see `CaseCache.from_text`.
    """
    if given is None:
        text = os.environ.get(CACHE_VARIABLE)
        try:
            return CaseCache.from_text(text) if text else None
        except ValueError as error:
            raise ValueError(f"{CACHE_VARIABLE} in the environment: {error}") from None
    if not isinstance(given, (CaseCache, str)):
        raise TypeError(f"case_cache must be a text, such as '20GB', got {given!r}")
    return CaseCache.from_text(given) if isinstance(given, str) else given


def _folder_named(place: str) -> tuple[Path, bool]:
    """The folder, and whether its name is one that others can guess, where they may write."""
    if place in ("", "memory"):
        users = f"detaug-cases-{os.geteuid()}" if hasattr(os, "geteuid") else "detaug-cases"
        return (_IN_MEMORY if place else Path(tempfile.gettempdir())) / users, True
    folder = Path(place).expanduser()
    if not folder.is_absolute():
        raise ValueError(f"the case cache's folder must be an absolute path, got {place!r}")
    return folder, False


def _map_or_add(key: tuple[CaseCache, str]) -> tuple[np.ndarray | None, int]:
    cache, file = key
    try:
        entry = Path(cache.folder, _entry_name(file))
        if not entry.exists() and not _add(cache, entry, file):
            return None, 1
        return np.load(entry, mmap_mode="r"), 1
    except Exception as error:  # whatever is wrong: the case's own file is read, as without a cache
        _say(cache, logging.WARNING, f"cannot be used, so that cases are read from their own files: {error!r}")
        return None, 1


def _add(cache: CaseCache, entry: Path, file: str) -> bool:
    """Whether an entry was written. Two processes may write one at the same time: both write the same."""
    cache.prepare()
    compressed_files.forget(file)  # what is open may be what the file was before it changed
    source = compressed_files.get(file)
    taken = sum(each.stat().st_size for each in entry.parent.glob("*.npy"))
    if taken + source.nbytes + 128 > cache.limit:
        _say(cache, logging.INFO, "is full: cases that are not in it are read from their own files")
        return False
    with whole_file(entry) as opened:
        np.save(opened, source[...], allow_pickle=False)
        if _entry_name(file) != entry.name:
            raise OSError(f"{file} changed while it was read")
    return True


_mapped: RecentlyUsed[tuple[CaseCache, str], np.ndarray | None] = RecentlyUsed(_map_or_add, MAPPED)
_told: set[str] = set()


def _say(cache: CaseCache, level: int, what: str) -> None:
    if cache.folder not in _told:
        logger.log(level, "the case cache %s %s", cache.folder, what)
    _told.add(cache.folder)


def _entry_name(file: str) -> str:
    found = os.stat(file)
    digest = xxhash.xxh3_128(f"1:{found.st_mtime_ns}:{os.path.abspath(file)}:".encode())
    add_edges(digest, Path(file))
    return f"{digest.hexdigest()}.npy"
