"""Ledger files: whole lines are appended, whole lines are read, whatever has happened to the file in between."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from detaug.errors import UnusableError

try:
    import fcntl
except ImportError:  # a system without it has no locks of files
    fcntl = None  # type: ignore[assignment]

#: A header describes a pipeline, in at most some thousand lines; what is longer belongs to something else.
LONGEST_LINE = 1 << 25


class NotALedger(UnusableError):
    """The file is no ledger, or not one that this version of detaug reads; the message says why."""


class InUse(OSError):
    """Another augmenter is writing to the file."""


def read_lines(path: Path) -> Iterator[bytes]:
    """The whole lines, with their line feeds. What stands behind the last line feed was being written when the process or the
    machine stopped, and is left out.

    Raises:
        OSError: the file cannot be read.
        NotALedger: a line is longer than any of a ledger.
    """
    with open(path, "rb") as file:
        while (line := file.readline(LONGEST_LINE)).endswith(b"\n"):
            yield line
        if len(line) == LONGEST_LINE:
            raise NotALedger(f"{path} is no ledger: it has a line of more than {LONGEST_LINE // 2**20} MiB")


_open: weakref.WeakSet[Appending] = weakref.WeakSet()


def _let_go_in_a_fork() -> None:
    """A fork that lives on must not keep the file locked when its parent is gone and another run goes on."""
    for each in list(_open):
        each.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go_in_a_fork)


class Appending:
    """A ledger file that is open for writing, by this process alone.

    Args:
        path: is made if it is not there. Call `cut` before anything is appended to one that is.

    Raises:
        InUse: somebody else writes to it.
        OSError: it cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        self._size = 0
        try:
            self._lock()
        except BaseException:
            os.close(self._descriptor)
            raise
        _open.add(self)

    def cut(self, size: int) -> None:
        """Remove what is behind so many bytes."""
        os.ftruncate(self._descriptor, size)
        self._size = size

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
