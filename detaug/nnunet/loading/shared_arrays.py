"""A folder of arrays that the processes of a machine share: written once, mapped by all, bounded by bytes.

One ``.npy`` file per array. What holds whenever and however often processes are killed:

- A file has its name from the moment on when it is whole, and never changes. Before that it is a ``.partial`` file, which no
  reader opens; the next process that adds an array removes those of writers that are gone.
- Whoever maps an array holds a shared lock on its file, a writer an exclusive one; the system releases them with the process.
  They only save work: an array whose file is removed stays readable for those who have it mapped.
- Nobody waits: a process that finds the folder busy or full goes on without it.
"""

from __future__ import annotations

import io
import math
import mmap
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from detaug.reports.atomic_files import whole_file

if sys.platform != "win32":
    import fcntl

#: An array that was mapped this recently (seconds) is not removed for another one. A folder that cannot hold a whole data set
#: so keeps what it has: replacing it all the time would cost more than it saves.
IN_USE = 3600.0

_ENDING, _PARTIAL = ".npy", ".partial"


class NoRoom(Exception):
    """There is no room for an array, and none that could be made."""


class ChangedMeanwhile(Exception):
    """What an array was made from changed while it was."""


def mapped(path: Path) -> np.ndarray | None:
    """The array of a file, read-only; None: there is no such file."""
    with suppress(FileNotFoundError), open(path, "rb") as file:
        _lock(file, exclusive=False)  # the map holds it, as long as there is one
        array = _map(file)
        with suppress(FileNotFoundError):  # it may have been removed since
            if array is None:
                path.unlink()  # a damaged disk's
            else:
                os.utime(path)  # it was used now
        return array
    return None


def add(path: Path, source: Any, limit: int, unchanged: Callable[[], bool]) -> np.ndarray | None:
    """Write an array into its file and map that; None: the folder is busy, or another process is writing this file.

    Args:
        source: something with ``shape`` and ``dtype``, of which parts can be sliced (``chunks``, if it has them, are what is
            best read at once).
        limit: what all files of the folder may take, in bytes.
        unchanged: asked before the file gets its name.

    Raises:
        NoRoom: arrays that are in use fill the folder or the disk, or this one is larger than the limit.
        ChangedMeanwhile: the source is not what it was.
        OSError: the folder cannot be written to.
    """
    header = io.BytesIO()
    described = {"descr": np.lib.format.dtype_to_descr(source.dtype), "fortran_order": False, "shape": source.shape}
    np.lib.format.write_array_header_1_0(header, described)
    size = len(header.getvalue()) + math.prod(source.shape) * source.dtype.itemsize
    with ExitStack() as stack:
        with open(path.with_name("lock"), "ab") as lock:
            if _lock(lock) is False or not _make_room(path, size, limit):
                return None
            file = stack.enter_context(whole_file(path))
            _lock(file)
            file.truncate(size)  # which others count from now on
        file.write(header.getvalue())
        for part in _parts(source):
            file.write(np.ascontiguousarray(part).data)
        if not unchanged():
            raise ChangedMeanwhile(str(path))
    return mapped(path)


def _map(file: BinaryIO) -> np.ndarray | None:
    try:
        np.lib.format.read_magic(file)
        shape, in_fortran_order, dtype = np.lib.format.read_array_header_1_0(file)
    except ValueError:
        return None
    start = file.tell()
    whole = start + math.prod(shape) * dtype.itemsize
    if in_fortran_order or dtype.hasobject or os.fstat(file.fileno()).st_size != whole:
        return None
    memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return np.frombuffer(memory, dtype, offset=start).reshape(shape)


def _parts(source: Any) -> Iterator[np.ndarray]:
    """The array in pieces that follow each other in memory, none larger than some planes of one channel."""
    thickness = source.chunks[-3] if hasattr(source, "chunks") else 16
    for channel in np.ndindex(*source.shape[:-3]):
        for start in range(0, source.shape[-3], thickness):
            yield np.asarray(source[(*channel, slice(start, start + thickness))])


def _make_room(path: Path, size: int, limit: int) -> bool:
    """Remove what is left of killed writers, and arrays that have not been used for long, as far as there is need to.

    False: another process is writing this file. Raises `NoRoom`.
    """
    present = files_in(path.parent)
    for name, state in list(present.items()):
        if name.endswith(_PARTIAL) and _removed(path.with_name(name), state.st_mtime):
            del present[name]
    if any(name.startswith(f".{path.name}.") for name in present):
        return False
    taken = sum(state.st_size for state in present.values())

    def fits() -> bool:
        disk = shutil.disk_usage(path.parent)
        return taken + size <= limit and enough_is_left(disk.free - size, disk.total)

    arrays = [name for name in present if name.endswith(_ENDING)]
    for name in sorted(arrays, key=lambda name: present[name].st_mtime):
        used = present[name].st_mtime
        if fits() or time.time() - used < IN_USE:
            break
        if _removed(path.with_name(name), used):
            taken -= present[name].st_size
    if not fits():
        raise NoRoom(f"{size} bytes in {path.parent}")
    return True


def enough_is_left(free: int, total: int) -> bool:
    """Whether so many free bytes of a disk do for all else that is written to it."""
    return free >= min(total // 20, 2 * 10**9)


def files_in(folder: Path) -> dict[str, os.stat_result]:
    """What is in a folder. A file whose writer renames it while names are read may be seen under neither: so they are read
    until they stay the same."""
    names: list[str] = []
    while True:
        before, names = names, sorted(os.listdir(folder))
        if names == before:
            with suppress(FileNotFoundError):
                return {name: os.stat(folder / name) for name in names}


def _removed(path: Path, used: float) -> bool:
    """Remove a file that no process has mapped or is writing."""
    try:
        with open(path, "rb") as file:
            free = _lock(file)
            if free is False or (free is None and time.time() - used < IN_USE):
                return False
        os.unlink(path)
    except FileNotFoundError:
        return not path.name.endswith(_PARTIAL)  # one that is written now just got its name, and still takes its room
    except OSError:  # Windows removes no file that is mapped
        return False
    return True


def _lock(file: BinaryIO, *, exclusive: bool = True) -> bool | None:
    """Lock a file as long as it is open or mapped. False: another process has it; None: there are no locks here."""
    if sys.platform == "win32":
        return None
    try:
        fcntl.flock(file, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a network's file system
        return None
    return True
