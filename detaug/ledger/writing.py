"""Writes a ledger, batch by batch. Memory and time per batch do not grow; a line is in the file
before the user has its batch.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from itertools import count
from pathlib import Path

from detaug.ledger.header import IDENTITY, Record
from detaug.ledger.lines import Course, Key, NotALedger, Note, encoded
from detaug.ledger.reading import LedgerSummary, read_header
from detaug.system import at_fork

try:
    import fcntl
except ImportError:  # Windows: two augmenters that write to one file are not noticed there
    fcntl = None  # type: ignore[assignment]

logger = logging.getLogger("detaug")


_open: weakref.WeakSet[FileIO] = weakref.WeakSet()


def _let_go_in_a_fork() -> None:
    """A fork that lives on must not keep the file locked when its parent is gone and another run
    goes on.
    """
    for each in list(_open):
        each.close()


at_fork(after_in_child=_let_go_in_a_fork)


def _locked(path: Path) -> FileIO:
    """Open the file for appending by this process alone; an OSError where somebody else writes to
    it.
    """
    while True:
        file = FileIO(path, "ab")
        _open.add(file)
        if fcntl is None:
            return file
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            raise OSError(0, "another augmenter is writing to it; give each its own file") from None
        except OSError:  # a file system without locks
            return file
        if _is_at(file, path):
            return file
        # Another run has put the file aside before it was locked: this lock does not keep that
        # run's new file from us.
        file.close()


def _is_at(file: FileIO, path: Path) -> bool:
    """Whether an open file is the one that has this path."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.stat(path))
    except FileNotFoundError:
        return False


def _append(file: FileIO, record: Record) -> None:
    """Write a line; after an OSError the file is as it was before."""
    line, size = encoded(record), os.fstat(file.fileno()).st_size
    try:
        while line:
            line = line[file.write(line) :]
    except OSError:
        with suppress(OSError):
            file.truncate(size)
        raise


def path_of_rank(path: Path, rank: int, world_size: int) -> Path:
    """Every rank has its own file: ``run.jsonl`` is ``run.rank1of4.jsonl`` for rank 1 of 4, and
    itself for a single one.
    """
    return path if world_size == 1 else _beside(path, f"rank{rank}of{world_size}")


def _beside(path: Path, text: str) -> Path:
    name, dot, endings = path.name.partition(".")
    return path.with_name(f"{name}.{text}{dot}{endings}")


def check_place(path: Path) -> None:
    """Raise a ValueError where a ledger cannot be: without a folder, or where there is something
    else.

    What is there already and is no ledger is never touched.
    """
    if not path.parent.is_dir():
        raise ValueError(
            f"ledger={os.fspath(path)!r}: there is no folder {os.fspath(path.parent)!r}. Make it"
            " first, or name a file in one that is there"
        )
    try:
        if path.exists() and not _is_empty(path):
            read_header(path)
    except NotALedger as error:
        raise ValueError(
            f"ledger={os.fspath(path)!r} is there already, and is left as it is: {error}"
        ) from None
    except OSError:  # that it cannot be written is said when it is to be
        pass


class LedgerWriter:
    """The ledger of one augmenter, which goes on where an earlier run's ends.

    Where a run goes back, in this process or another, the lines from there on are cut off: the
    batches are had again. A file that another pipeline or seed has written is renamed
    (``run.1.jsonl``). Where the file cannot be written, a warning says so once, and the run goes on
    without it.

    Args:
        path: of the file.
        header: makes the first line, when the first batch is there.
    """

    def __init__(self, path: Path, header: Callable[[], Record]) -> None:
        self.path = path
        self._make_header = header
        self._lock = (
            threading.RLock()
        )  # a signal's handler may save a state in the middle of a line
        self._file: FileIO | None = None
        self._stopped = False
        self._owner = os.getpid()
        self._course: Course  # of what stands in the file, while that is open
        #: To be held while a batch is taken and `delivered`, so that the lines of several threads
        #: come in their batches' order.
        self.taking = threading.RLock()

    def delivered(self, key: Key, step: int, note: Note, waited: float, restarts: int) -> None:
        """A batch was taken: `step`, which stands at `key`, for which the user's thread has waited
        so many seconds, after so many processes were replaced.
        """
        if self._stopped or os.getpid() != self._owner:  # a fork of the process has another's file
            return
        whole, keys, computed, worker = note
        with self._trying(key):
            file, course = self._opened(key)
            if course.epoch not in (None, key.epoch):
                _append(file, course.end_epoch())
            record: Record = {
                "kind": "batch",
                "name": course.header["name"],
                "epoch": key.epoch,
                "step": step,
            }
            record |= {} if key.place == step else {"place": key.place}
            record |= {
                "whole": whole,
                "keys": keys,
                "waited": round(waited, 6),
                "computed": round(computed, 6),
            }
            record |= {"worker": worker, "restarts": restarts}
            # First: what has no fingerprint raises here, and has no line.
            course.add(record)
            _append(file, record)

    def epoch_ended(self) -> None:
        """The epoch of the last batch has no more."""
        if self._file is not None and self._course.epoch is not None:
            with self._trying(Key(self._course.epoch, math.inf)):
                _append(self._file, self._course.end_epoch())

    def close(self) -> None:
        """Give the file free; it is opened again for another batch."""
        with self._lock:
            file, self._file = self._file, None
            if file is not None:
                file.close()

    @contextmanager
    def _trying(self, key: Key) -> Iterator[None]:
        """Inside, the ledger stops at an error."""
        with self._lock:
            try:
                yield
            except (OSError, NotALedger) as error:
                self._stop(key, error)
            except (
                BaseException
            ):  # Ctrl-C between a line and the course: the course is made anew from the file
                self.close()
                raise

    def _opened(self, key: Key) -> tuple[FileIO, Course]:
        """The file, at whose end this batch is to be written, and the course up to there."""
        if self._file is None:
            header = self._make_header()
            self._file = _locked(self.path)
            if self._put_aside(header):
                self._file.close()
                self._file = _locked(self.path)
            if _is_empty(self.path):
                _append(self._file, header)
                self._course = Course(header)
                return self._file, self._course
        elif self._course.last is None or key > self._course.last:
            return self._file, self._course
        # What stands behind this batch's place, or was being written when a process was killed, is
        # cut off.
        kept = LedgerSummary(self.path, before=key)
        self._course = kept.course
        self._file.truncate(kept.size)
        return self._file, self._course

    def _put_aside(self, header: Record) -> bool:
        """Rename a file that another run has written. Whether there was one."""
        if _is_empty(self.path):
            return False
        theirs = read_header(self.path)
        different = [
            text for name, text in IDENTITY.items() if header.get(name) != theirs.get(name)
        ]
        if not different:
            return False
        aside = next(
            path for number in count(1) if not (path := _beside(self.path, str(number))).exists()
        )
        os.rename(self.path, aside)
        text = "%s was the ledger of another run (other %s), and is %s from now on"
        logger.warning(text, self.path, ", ".join(different), aside)
        return True

    def _stop(self, key: Key, error: Exception) -> None:
        """Nothing more is written by this object."""
        self._stopped = True
        self.close()
        if key.place == math.inf:  # all of an epoch's batches are there
            key = Key(key.epoch + 1, 0)
        why = error.strerror if isinstance(error, OSError) and error.strerror else error
        text = (
            "the ledger %s stopped at %s: %s. The run goes on without it; batches are not affected"
        )
        logger.warning(text, self.path, key.text, why)


def _is_empty(path: Path) -> bool:
    """Whether it is a file in which a ledger may begin."""
    return path.is_file() and not path.stat().st_size
