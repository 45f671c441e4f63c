"""Ledger files: whole lines are appended, whole lines are read, whatever has happened to the file in between."""

from __future__ import annotations

import gzip
import os
import weakref
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # a system without it has no locks of files
    fcntl = None  # type: ignore[assignment]

#: A header describes a pipeline, in at most some thousand lines; what is longer belongs to something else.
LONGEST_LINE = 1 << 25
_MAGIC = b"\x1f\x8b"


class NotALedger(ValueError):
    """The file is no ledger, or not one that this version of detaug reads; the message says why."""


class InUse(OSError):
    """Another augmenter is writing to the file."""


def is_compressed(path: Path) -> bool:
    """Whether somebody has compressed the file with gzip: it can be read, and not be continued."""
    with open(path, "rb") as file:
        return file.read(2) == _MAGIC


def read_lines(path: Path) -> Iterator[bytes]:
    """The whole lines, with their line feeds. What stands behind the last line feed was being written when the process or the
    machine stopped, and is left out.

    Raises:
        OSError: the file cannot be read.
        NotALedger: a line is longer than any of a ledger.
    """
    with open(path, "rb") as raw:
        file = gzip.GzipFile(fileobj=raw) if is_compressed(path) else raw
        with suppress(EOFError, zlib.error, gzip.BadGzipFile):
            while (line := file.readline(LONGEST_LINE)).endswith(b"\n"):
                yield line
            if len(line) == LONGEST_LINE:
                raise NotALedger(f"{path} is no ledger: it has a line of more than {LONGEST_LINE // 2**20} MiB")


_open: weakref.WeakSet[Appending] = weakref.WeakSet()


def _let_go_in_a_fork() -> None:
    """A fork that lives on must not keep the file locked when its parent is gone and another run goes on."""
    for each in list(_open):
        if each._descriptor >= 0:
            os.close(each._descriptor)
            each._descriptor = -1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go_in_a_fork)


class Appending:
    """A ledger file that is open for writing, by this process alone.

    Args:
        path: is made if it is not there. Call `repair` before anything is written to one that is.

    Raises:
        InUse: somebody else writes to it.
        OSError: it cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            self._lock()
            self._size = os.fstat(self._descriptor).st_size
        except BaseException:
            os.close(self._descriptor)
            raise
        _open.add(self)

    @property
    def is_empty(self) -> bool:
        """Whether there is no whole line in it."""
        return self._size == 0

    def append(self, line: bytes) -> None:
        """Write a line.

        Raises:
            OSError: it could not be written; the file is as it was before.
        """
        # Not with O_APPEND: on Linux that would have `pwrite` append as well.
        done = 0
        try:
            while done < len(line):
                done += os.pwrite(self._descriptor, line[done:], self._size + done)
        except OSError:
            if done:
                with suppress(OSError):
                    os.ftruncate(self._descriptor, self._size)
            raise
        self._size += len(line)

    def close(self) -> None:
        """Give the file free."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _lock(self) -> None:
        if fcntl is None:
            return
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InUse(0, "another augmenter is writing to it; give each its own file") from None
        except OSError:  # a file system without locks
            pass

    def repair(self) -> None:
        """Cut off what a crash has left behind the last whole line. Errors as `append`."""
        end = self._size
        while end > 0:
            start = max(0, end - 65_536)
            found = os.pread(self._descriptor, end - start, start).rfind(b"\n")
            if found >= 0:
                end = start + found + 1
                break
            end = start
        if end < self._size:
            os.ftruncate(self._descriptor, end)
            self._size = end
