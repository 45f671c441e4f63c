"""`CaseCache`: compressed cases, decompressed once per machine into a folder and mapped from there by all processes.

To read a patch of a compressed case is to decompress the blocks that hold it, for every patch again. An entry of the cache
holds a whole array. Its name is a digest of what it was made from: path, size, time of change (nanoseconds) and both ends
of the case's file. A case that changes has another entry; the old one is not used any more, and removed some time.
"""

from __future__ import annotations

import logging
import os
import re
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xxhash

from detaug.nnunet.loading import shared_arrays
from detaug.nnunet.loading.compressed_files import compressed_files
from detaug.nnunet.loading.file_edges import add_edges
from detaug.nnunet.loading.recently_used import RecentlyUsed

CACHE_VARIABLE = "DETAUG_CASE_CACHE"

#: How many entries a process keeps mapped.
MAPPED = 64

#: Where there was no room, a process adds nothing for this long (seconds).
PAUSE = 60.0

_UNITS = {"MB": 10**6, "GB": 10**9, "TB": 10**12, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_IN_MEMORY = Path("/dev/shm")

logger = logging.getLogger("detaug")


@dataclass(frozen=True)
class CaseCache:
    """Where decompressed cases are kept, and how much of them.

    Attributes:
        folder: of the entries. All processes that name it share them.
        limit: bytes that all entries together may take.
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
        except OSError as error:
            raise ValueError(f"the case cache {text!r} cannot be used: {error}") from None
        return cache

    def __str__(self) -> str:
        return f"up to {self.limit / 1e9:g} GB of decompressed cases in {self.folder}"

    def prepare(self) -> None:
        """Make the folder. Raises OSError where it cannot be used."""
        folder = Path(self.folder)
        if self.private:
            folder.mkdir(mode=0o700, exist_ok=True)
            found = folder.lstat()
            if hasattr(os, "geteuid") and (found.st_uid != os.geteuid() or found.st_mode & 0o022):
                raise PermissionError(f"{folder} is not this user's alone")
        else:
            folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(f"{folder} cannot be written to")

    def array(self, file: str) -> np.ndarray | None:
        """What a compressed file holds, mapped read-only; decompressed first if no process has done so yet. None: it is not
        here, and there is no room for it now."""
        found = _mapped.get((self, file))
        if found is None:
            self.forget(file)
        return found

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


# --- in each process ----------------------------------------------------------------------------------------------------


def _map_or_add(key: tuple[CaseCache, str]) -> tuple[np.ndarray | None, int]:
    cache, file = key
    found = None
    try:
        name = _entry_name(file)
        path = Path(cache.folder, name)
        found = shared_arrays.mapped(path)
        if found is None and time.monotonic() >= _paused_until.get(cache.folder, 0.0):
            cache.prepare()
            compressed_files.forget(file)  # what is open may be what the file was before it changed
            source = compressed_files.get(file)
            found = shared_arrays.add(path, source, cache.limit, lambda: _entry_name(file) == name)
    except shared_arrays.NoRoom:
        _pause(cache, logging.INFO, "is full: cases that are not in it are read from their own files")
    except Exception as error:  # whatever is wrong: the case's own file is read, as without a cache
        _pause(cache, logging.WARNING, f"cannot be added to, so that cases are read from their own files: {error!r}")
    return found, 1


_mapped: RecentlyUsed[tuple[CaseCache, str], np.ndarray | None] = RecentlyUsed(_map_or_add, MAPPED)
_paused_until: dict[str, float] = {}
_names: dict[str, tuple[tuple[int, ...], str]] = {}


def _pause(cache: CaseCache, level: int, what: str) -> None:
    if cache.folder not in _paused_until:
        logger.log(level, "the case cache %s %s", cache.folder, what)
    _paused_until[cache.folder] = time.monotonic() + PAUSE


def _entry_name(file: str) -> str:
    """The name of a case file's entry, made anew where the file is another than the last time."""
    found = os.stat(file)
    state = (found.st_size, found.st_mtime_ns, found.st_ino)
    if _names.get(file, ((), ""))[0] != state:
        digest = xxhash.xxh3_128(f"1:{found.st_mtime_ns}:{os.path.abspath(file)}:".encode())
        add_edges(digest, Path(file))
        _names[file] = state, f"{digest.hexdigest()}.npy"
    return _names[file][1]
