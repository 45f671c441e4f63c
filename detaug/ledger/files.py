"""Ledger files: whole lines are appended, whole lines are read, whatever has happened to the file in between.

Plain files have one line after another. Compressed ones are a row of gzip members, each with whole lines; what a crash leaves of
the last one is read as far as it goes.
"""

from __future__ import annotations

import gzip
import os
import time
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
#: A compressed file gets a member after so many lines, or seconds.
_LINES_OF_A_MEMBER, _SECONDS_OF_A_MEMBER = 64, 30.0
_MAGIC = b"\x1f\x8b"


class NotALedger(ValueError):
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
    with open(path, "rb") as raw:
        compressed = raw.read(2) == _MAGIC
        raw.seek(0)
        file = gzip.GzipFile(fileobj=raw) if compressed else raw
        with suppress(EOFError, zlib.error, gzip.BadGzipFile):
            while (line := file.readline(LONGEST_LINE)).endswith(b"\n"):
                yield line
            if len(line) == LONGEST_LINE:
                raise NotALedger(f"{path} is no ledger: it has a line of more than {LONGEST_LINE // 2**20} MiB")


def first_bytes(path: Path, number: int) -> bytes:
    """At most so many bytes of the text with which a file begins, of a line that was cut off as well.

    Raises:
        OSError: the file cannot be read.
    """
    with open(path, "rb") as file:
        data = file.read(65_536)
    if data[:2] == _MAGIC[: len(data)]:  # a single byte of one may be there too
        with suppress(zlib.error):
            return zlib.decompressobj(31).decompress(data, number)
    return data[:number]


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
        self._waiting: list[bytes] = []
        self._since = 0.0
        self._last = 0  # bytes of the last line
        #: Lines that waited could not be written, and never will be.
        self.has_lost_lines = False
        self._owner = os.getpid()
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            self._lock()
            self._size = os.fstat(self._descriptor).st_size
            self._compressed = self._is_compressed()
        except BaseException:
            os.close(self._descriptor)
            raise
        _open.add(self)

    @property
    def is_empty(self) -> bool:
        """Whether there is no whole line in it."""
        return self._size == 0

    def _is_compressed(self) -> bool:
        # A ledger that somebody has packed or unpacked since goes on as it is: by its name, all of it would be taken for torn.
        return os.pread(self._descriptor, 2, 0) == _MAGIC if self._size else self.path.suffix == ".gz"

    @property
    def has_waiting(self) -> bool:
        """Whether lines wait for others."""
        return bool(self._waiting)

    def append(self, line: bytes) -> None:
        """Write a line. In a compressed file it waits for others, at most until `flush`.

        Raises:
            OSError: it could not be written; the file is as it was before.
        """
        if not self._compressed:
            self._write(line)
            self._last = len(line)
            return
        if not self._waiting:
            self._since = time.monotonic()
        self._waiting.append(line)
        if len(self._waiting) >= _LINES_OF_A_MEMBER or time.monotonic() - self._since > _SECONDS_OF_A_MEMBER:
            self.flush()

    def flush(self) -> None:
        """Nothing waits any more. Errors as `append`."""
        waiting, self._waiting = self._waiting, []
        if waiting and os.getpid() == self._owner:  # a fork of the process has copies of them
            try:
                self._write(gzip.compress(b"".join(waiting), mtime=0))
            except OSError:
                self.has_lost_lines = True
                raise

    def append_or_replace(self, line: bytes, instead: bytes) -> bool:
        """As a last word, where there may be no room: append `line`; or write `instead` over the last line, which must be longer,
        for that needs no room. Whether one of them was written."""
        with suppress(OSError):
            if self._compressed:
                self._waiting.clear()
                line = gzip.compress(line, mtime=0)
            self._write(line)
            return True
        if self._last >= len(instead):
            with suppress(OSError):
                at = self._size - self._last
                os.pwrite(self._descriptor, instead, at)
                os.ftruncate(self._descriptor, at + len(instead))
                return True
        return False

    def close(self) -> None:
        """Write what waits, and give the file free. Errors as `append`."""
        try:
            self.flush()
        finally:
            _open.discard(self)
            if self._descriptor >= 0:
                os.close(self._descriptor)
                self._descriptor = -1

    def _write(self, data: bytes) -> None:
        # Not with O_APPEND: on Linux that would have `pwrite` append as well.
        done = 0
        try:
            while done < len(data):
                done += os.pwrite(self._descriptor, data[done:], self._size + done)
        except OSError:
            if done:
                with suppress(OSError):
                    os.ftruncate(self._descriptor, self._size)
            raise
        self._size += len(data)

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
        self._cut_off()
        self._compressed = self._is_compressed()

    def _cut_off(self) -> None:
        if self._compressed:
            whole, torn = _whole_members(self.path)
            if whole < self._size:
                os.ftruncate(self._descriptor, whole)
                self._size = whole
                if torn:
                    self._write(gzip.compress(torn, mtime=0))
            return
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


def _whole_members(path: Path) -> tuple[int, bytes]:
    """(where the last whole member ends, the whole lines of what follows it)."""
    end = at = 0
    decompressor, torn = zlib.decompressobj(31), b""
    with open(path, "rb") as file, suppress(zlib.error):
        while data := file.read(65_536):
            while data:
                torn += decompressor.decompress(data)
                at += len(data) - len(decompressor.unused_data)
                data = decompressor.unused_data
                if not decompressor.eof:
                    break
                end, torn, decompressor = at, b"", zlib.decompressobj(31)
    return end, torn[: torn.rfind(b"\n") + 1]
