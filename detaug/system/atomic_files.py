"""Files that are there whole or not at all, whenever the process or the machine stops.

A file is written under a name that nobody can foresee, and renamed when it is whole. Its writer
holds a lock on it until then: remains of a writer that was killed are the files without a lock, on
whatever host it ran.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_PREFIX = ".detaug-"
_SUFFIX = ".partial"

#: A link under a file's name is not followed, and no child process inherits the file. Windows has
#: neither flag; it needs O_BINARY.
_OPEN_FLAGS = (
    getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
)


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """Open a file to write, so that a reader finds the old file or the new one.

    It is under another name until the end of the block. A file that is replaced passes its mode on.
    If the path is a link, the link stays and its target is replaced.

    Raises:
        OSError: it cannot be written, or is there and no regular file; what was there before is
            still there.
    """
    target = Path(os.path.realpath(path))
    mode = _mode_of(target)
    partial, descriptor = _new_partial(target.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            # The name must not be there before the bytes are: a machine that stops may keep one
            # without the other.
            file.flush()
            if mode is not None and hasattr(os, "fchmod"):
                os.fchmod(descriptor, mode)
            os.fsync(descriptor)
            if fcntl is None:
                # Windows renames no file that is open.
                file.close()
            # While it is open, and so locked: nobody removes it before it has its name.
            os.replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)


def remove_unfinished(folder: Path) -> None:
    """Remove what writers that were killed have left of `whole_file` in a folder."""
    if fcntl is None:
        # Without locks nothing distinguishes remains from a file that is being written.
        return
    for partial in folder.glob(f"{_PREFIX}*{_SUFFIX}"):
        # Somebody else's, gone by now, or on a file system without locks: it stays.
        with suppress(OSError):
            _remove_if_unlocked(partial)


def _mode_of(target: Path) -> int | None:
    """Return the mode of the file that is to be replaced; None if there is no file."""
    try:
        status = target.stat()
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is no regular file", os.fspath(target))
    return stat.S_IMODE(status.st_mode)


def _new_partial(folder: Path) -> tuple[Path, int]:
    """Return a new file in a folder, and a descriptor that holds its lock."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _OPEN_FLAGS
    while True:
        partial = folder / f"{_PREFIX}{secrets.token_hex(8)}{_SUFFIX}"
        descriptor = os.open(partial, flags, 0o666)
        if fcntl is None:
            return partial, descriptor
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            # `remove_unfinished` holds the lock, and is about to remove the file.
            os.close(descriptor)
            continue
        except OSError:
            # A file system without locks.
            pass
        # A file without a name was removed by `remove_unfinished` before it was locked here.
        if os.fstat(descriptor).st_nlink:
            return partial, descriptor
        os.close(descriptor)


def _remove_if_unlocked(partial: Path) -> None:
    # To write: some network file systems give no other file an exclusive lock.
    descriptor = os.open(partial, os.O_RDWR | os.O_NONBLOCK | _OPEN_FLAGS)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Its writer may have renamed it between the two lines above: then the name is free, or
        # another writer's.
        if os.path.samestat(os.fstat(descriptor), os.lstat(partial)):
            partial.unlink()
    finally:
        os.close(descriptor)
