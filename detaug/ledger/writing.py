"""Write a ledger, batch by batch.

Memory and time per batch do not grow; a line is in the file before the user has its batch.
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
from pathlib import Path

from detaug.ledger.header import IDENTITY, Record
from detaug.ledger.lines import BatchRecord, Key, NotALedger, RunningDigest, encoded
from detaug.ledger.reading import LedgerSummary, read_header
from detaug.system.platform import at_fork

try:
    import fcntl
except ImportError:
    # Windows: two augmenters that write to one file are not noticed there.
    fcntl = None  # type: ignore[assignment]

logger = logging.getLogger("detaug")

#: The files of this process's ledgers.
_open: weakref.WeakSet[FileIO] = weakref.WeakSet()


def _close_in_a_fork() -> None:
    """Close this process's ledgers, which are its parent's.

    A fork that outlives its parent must not keep the file locked when another run continues it.
    """
    for file in list(_open):
        file.close()


at_fork(after_in_child=_close_in_a_fork)


def _locked(path: Path) -> FileIO:
    """Open the file for appending by this process alone.

    Raises:
        OSError: somebody else writes to it.
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
        except OSError:
            # A file system without locks.
            return file
        if _is_at(file, path):
            return file
        # Another run has put the file aside before it was locked: this lock does not keep that
        # run's new file from us.
        file.close()


def _is_at(file: FileIO, path: Path) -> bool:
    """Return True if an open file is the one that has this path."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.stat(path))
    except FileNotFoundError:
        return False


def _append(file: FileIO, record: Record) -> None:
    """Write a line; after an OSError the file is as it was before."""
    # Unbuffered, and usually one call: a killed process leaves at most this line incomplete.
    line = encoded(record)
    size = os.fstat(file.fileno()).st_size
    try:
        while line:
            line = line[file.write(line) :]
    except OSError:
        with suppress(OSError):
            file.truncate(size)
        raise


def path_of_rank(path: Path, rank: int, world_size: int) -> Path:
    """Return the path of a rank's own file.

    ``run.jsonl`` is ``run.rank1of4.jsonl`` for rank 1 of 4, and itself for a single one.
    """
    if world_size == 1:
        return path
    return _neighbour(path, f"rank{rank}of{world_size}")


def _neighbour(path: Path, text: str) -> Path:
    """Return the path of a file next to this one, with `text` before the endings of its name."""
    name, dot, endings = path.name.partition(".")
    return path.with_name(f"{name}.{text}{dot}{endings}")


def check_place(path: Path) -> None:
    """Raise a ValueError where a ledger cannot be: without a folder, or in place of another file.

    A file that is there already and is no ledger is never touched.
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
    except OSError:
        # A file that cannot be written is reported when there is a line for it.
        pass


class LedgerWriter:
    """The ledger of one augmenter, which continues where an earlier run's ends.

    Where a run goes back, in this process or another, the lines from there on are cut off: those
    batches are delivered again. A file that another pipeline or seed has written is renamed
    (``run.1.jsonl``). Where the file cannot be written, a warning is logged once, and the
    run continues without it.

    Args:
        path: of the file.
        header: returns the first line; called when there is the first batch.
    """

    def __init__(self, path: Path, header: Callable[[], Record]) -> None:
        self.path = path
        self._make_header = header
        # Reentrant: a signal's handler may save a state in the middle of a line.
        self._lock = threading.RLock()
        self._file: FileIO | None = None
        self._stopped = False
        self._owner = os.getpid()
        # The digest of the lines that are in the file; there while that is open.
        self._digest: RunningDigest
        #: Held while a batch is taken and `delivered`, so that the lines of several threads come in
        #: their batches' order.
        self.order_lock = threading.RLock()

    def delivered(
        self, key: Key, step: int, note: BatchRecord, waited: float, restarts: int
    ) -> None:
        """Write the line of a batch that the user is about to get.

        If an interrupt keeps it from the user, it is due again, and its line is replaced.

        Args:
            key: where the batch stands in the run's order.
            step: the step whose batch it is.
            note: fingerprints, seconds of work and process number, from where it was made.
            waited: seconds that the user's thread has waited for it.
            restarts: processes that were replaced so far.
        """
        if self._stopped or os.getpid() != self._owner:
            # In a fork of the process: the file is its parent's.
            return
        # The worker has computed the fingerprints, so the batch is not read here.
        whole, keys, computed, worker = note
        with self._trying(key):
            file, digest = self._opened(key)
            if digest.epoch not in (None, key.epoch):
                _append(file, digest.end_epoch())
            record: Record = {
                "kind": "batch",
                "name": digest.header["name"],
                "epoch": key.epoch,
                "step": step,
            }
            if key.place != step:
                # The last round of a padded epoch repeats steps.
                record["place"] = key.place
            record["whole"] = whole
            record["keys"] = keys
            record["waited"] = round(waited, 6)
            record["computed"] = round(computed, 6)
            record["worker"] = worker
            record["restarts"] = restarts
            # Before the line is written: a batch without a fingerprint raises here.
            digest.add(record)
            _append(file, record)

    def epoch_ended(self) -> None:
        """Write the line of an epoch's end, after its last batch."""
        if self._file is not None and self._digest.epoch is not None:
            with self._trying(Key(self._digest.epoch, math.inf)):
                _append(self._file, self._digest.end_epoch())

    def close(self) -> None:
        """Close the file; it is opened again for another batch."""
        with self._lock:
            file = self._file
            self._file = None
            if file is not None:
                file.close()

    @contextmanager
    def _trying(self, key: Key) -> Iterator[None]:
        """Stop the ledger at an error, inside the block."""
        with self._lock:
            try:
                yield
            except (OSError, NotALedger) as error:
                self._stop(key, error)
            except BaseException:
                # Ctrl-C may come between a line and the digest, which is then read from the file
                # again.
                self.close()
                raise

    def _opened(self, key: Key) -> tuple[FileIO, RunningDigest]:
        """Return the file, which ends where this batch is to be written, and the digest so far."""
        if self._file is None:
            header = self._make_header()
            self._file = _locked(self.path)
            if self._put_aside(header):
                self._file.close()
                self._file = _locked(self.path)
            if _is_empty(self.path):
                _append(self._file, header)
                self._digest = RunningDigest(header)
                return self._file, self._digest
        elif self._digest.last is None or key > self._digest.last:
            # The usual case: this batch follows the file's last one, so nothing is read.
            return self._file, self._digest
        # Cut off the lines from this batch on, and a line that was being written when a process was
        # killed.
        summary = LedgerSummary(self.path, before=key)
        self._digest = summary.running_digest
        self._file.truncate(summary.size)
        return self._file, self._digest

    def _put_aside(self, header: Record) -> bool:
        """Rename a file that another run has written; return True if there was one."""
        if _is_empty(self.path):
            return False
        earlier = read_header(self.path)
        different = [
            text for name, text in IDENTITY.items() if header.get(name) != earlier.get(name)
        ]
        if not different:
            return False
        # A free number, because `os.rename` would replace a file that exists.
        number = 1
        while _neighbour(self.path, str(number)).exists():
            number += 1
        aside = _neighbour(self.path, str(number))
        os.rename(self.path, aside)
        text = "%s was the ledger of another run (other %s), and is %s from now on"
        logger.warning(text, self.path, ", ".join(different), aside)
        return True

    def _stop(self, key: Key, error: Exception) -> None:
        """Write nothing more, and log why."""
        self._stopped = True
        self.close()
        if key.place == math.inf:
            # All batches of the epoch are in the file.
            key = Key(key.epoch + 1, 0)
        reason: object = error
        if isinstance(error, OSError) and error.strerror:
            reason = error.strerror
        text = (
            "the ledger %s stopped at %s: %s. The run goes on without it; batches are not affected"
        )
        logger.warning(text, self.path, key.text, reason)


def _is_empty(path: Path) -> bool:
    """Return True for a file in which a ledger may begin."""
    return path.is_file() and not path.stat().st_size
