"""What a ledger's lines add up to: one running SHA-256 over the batches that count, in their order."""

from __future__ import annotations

import json
from hashlib import sha256

from detaug.ledger.header import identity
from detaug.ledger.lines import Damaged, Key, Record

#: Digits of the digest in a batch's line: enough to name the first line that was changed. Receipts have all 64.
DIGITS = 16


class Course:
    """Where a ledger stands after some of its lines. O(1) memory.

    The digest is SHA-256 of the identity of the run, a line feed, and for every batch its epoch, place where it is not
    the step, step and fingerprints and a line feed, as JSON. Nothing enters it that differs between two equal runs.

    Args:
        header: the ledger's.

    Attributes:
        batches: in all.
        epochs: how many have ended.
        epoch: which one is going on; None: none is.
        size: how many batches of it there are.
        last: the last batch; in `end_epoch` its epoch's end; None: there was none.
    """

    def __init__(self, header: Record) -> None:
        self._hash = sha256(identity(header) + b"\n")
        self.epochs = self.batches = self.size = 0
        self.epoch: int | None = None
        self.last: Key | None = None

    @property
    def digest(self) -> str:
        """64 hexadecimal digits, over all batches so far."""
        return self._hash.hexdigest()

    def add(self, record: Record, key: Key) -> None:
        """A batch, of the epoch that is going on or of another, where none is. Errors as `after`."""
        self._hash.update(_counted(record))
        self.batches += 1
        self.size = self.size + 1 if self.epoch == key.epoch else 1
        self.epoch, self.last = key.epoch, key

    def after(self, record: Record) -> str:
        """The digits for a batch's line: of the digest with that batch.

        Raises:
            Damaged: it has no fingerprints.
        """
        then = self._hash.copy()
        then.update(_counted(record))
        return then.hexdigest()[:DIGITS]

    def end_epoch(self) -> Record:
        """The epoch that is going on has ended; the line that says so."""
        assert self.epoch is not None
        record: Record = {"kind": "epoch", "epoch": self.epoch, "batches": self.size, "digest": self.digest}
        self.epochs, self.last = self.epochs + 1, Key(self.epoch, float("inf"))
        self.epoch = None
        return record


def _counted(record: Record) -> bytes:
    """What of a batch's line enters the digest.

    Raises:
        Damaged: it has no fingerprints.
    """
    try:
        what = [record["epoch"], record.get("place"), record["step"], record["whole"], record["keys"]]
    except KeyError as error:
        raise Damaged(f"a batch without {error}") from None
    if not isinstance(record["keys"], dict) or type(record["step"]) is not int:
        raise Damaged("its fingerprints are not by key, or its step is no number")
    return json.dumps(what, sort_keys=True, separators=(",", ":")).encode() + b"\n"
