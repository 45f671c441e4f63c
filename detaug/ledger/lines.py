"""A ledger's lines, which are JSON objects, and the running SHA-256 over its batches.

{"kind":"header","format":3, ...what was run (`detaug.ledger.header`)...}
{"kind":"batch","name":"train","epoch":0,"step":0,"whole":"...","keys":{...},"waited":...,...}
{"kind":"epoch","epoch":0,"batches":250,"digest":"..."}

They stand in the order of their epochs and steps: where a run goes back, later lines are cut off.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Collection, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

from detaug.errors import UnusableError
from detaug.ledger.header import IDENTITY, Record
from detaug.objects.fingerprints import fingerprint, fingerprint_or_none
from detaug.system.escaping import short
from detaug.system.untrusted import conforms, lines_of, parse_json


class NotALedger(UnusableError):
    """The file is no ledger, or not one that this version of detaug reads; the message says why."""


class InvalidLine(NotALedger):
    """A line that is none of a ledger's; the message says what is wrong with it."""


class Key(NamedTuple):
    """Where in its run's order a batch stands.

    Attributes:
        epoch: the batch's epoch.
        place: its step; but for the last round of a padded epoch (`tail="pad"`), whose places have
            steps of the epoch's start. An epoch's end stands at infinity.
    """

    epoch: int
    place: float

    @property
    def text(self) -> str:
        """The words for it in messages."""
        if self.place == math.inf:
            return f"the end of epoch {self.epoch}"
        return f"epoch {self.epoch}, step {self.place}"


def encoded(record: Record) -> bytes:
    """Return the line of a record, with its line feed."""
    return json.dumps(record, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def decoded(line: bytes) -> Record:
    """Return the record of a line.

    Raises:
        InvalidLine: there is none.
    """
    try:
        record = parse_json(line)
    except ValueError:
        raise InvalidLine("it is not JSON") from None
    if not isinstance(record, dict):
        raise InvalidLine("it is no line of a ledger")
    return record


def key_of(record: Record) -> Key:
    """Return where a batch stands; an epoch's end stands after all its batches.

    Raises:
        InvalidLine: the record does not say so, or a fingerprint is missing.
    """
    # Every entry is checked, because the file may come from somebody else.
    kind = record.get("kind")
    if kind not in ("batch", "epoch"):
        raise InvalidLine(f"there are no lines of the kind {short(repr(kind))}")
    epoch = record.get("epoch")
    if kind == "epoch":
        if not _is_number(epoch):
            raise InvalidLine("it does not say which epoch it ends")
        return Key(epoch, math.inf)
    step = record.get("step")
    place = record.get("place", step)
    if not (_is_number(epoch) and _is_number(step) and _is_number(place)):
        raise InvalidLine("it does not say which epoch and step it is about")
    if not conforms(record.get("keys"), dict[str, str | None]):
        raise InvalidLine("its fingerprints are not by key")
    if "whole" not in record or not conforms(record["whole"], str | None):
        raise InvalidLine("it has no fingerprint of the whole")
    # A batch that is no dict has no keys.
    fingerprints = record["keys"] or {"the batch": record["whole"]}
    missing = tuple(name for name, value in fingerprints.items() if value is None)
    if missing:
        names = ", ".join(short(repr(name)) for name in missing)
        advice = f". Leave it out by check=Check(ignore={missing})" if record["keys"] else ""
        raise InvalidLine(
            f"there is no fingerprint of {names}: it is no array, tensor, number or string, nor a"
            f" container of these, and has no bytes that are the same everywhere{advice}"
        )
    return Key(epoch, place)


def _is_number(value: Any) -> TypeGuard[int]:
    """Return True for a possible number of an epoch or a step."""
    return type(value) is int and 0 <= value < 1 << 32


def read_lines(path: Path) -> Iterator[bytes]:
    """Yield the whole lines, with their line feeds.

    Bytes after the last line feed were being written when the process or the machine stopped; they
    are left out.
    """
    try:
        for line in lines_of(path):
            if line.endswith(b"\n"):
                yield line
    except ValueError as error:
        raise InvalidLine(f"{path} is no ledger: {error}") from None


class RunningDigest:
    """The digest and the counts of a ledger after some of its lines, in O(1) memory.

    The digest is SHA-256 of the identity of the run, a line feed, and for every batch its epoch,
    place where it is not the step, step and fingerprints and a line feed, as JSON. Nothing enters
    it that differs between two equal runs.

    Attributes:
        batches: number of batches so far.
        epochs: number of epochs that have ended.
        epoch: the current epoch; None after an epoch's end.
        size: batches of the current epoch.
        last: where the last line stands.
    """

    def __init__(self, header: Record) -> None:
        self.header = header
        identity = json.dumps([header.get(name) for name in IDENTITY], separators=(",", ":"))
        self._hash = sha256(identity.encode() + b"\n")
        self.epochs = 0
        self.batches = 0
        self.size = 0
        self.epoch: int | None = None
        self.last: Key | None = None

    @property
    def digest(self) -> str:
        """The digest of all batches so far, 64 hexadecimal digits."""
        return self._hash.hexdigest()

    def add(self, record: Record) -> None:
        """Add a batch of the current epoch or, after an epoch's end, of another one.

        Raises:
            InvalidLine: the record is no batch's.
        """
        key = key_of(record)
        facts = [key.epoch, record.get("place"), record["step"], record["whole"], record["keys"]]
        # Sorted, because the order of a batch's keys may differ between two equal runs.
        text = json.dumps(facts, sort_keys=True, separators=(",", ":"))
        self._hash.update(text.encode() + b"\n")
        self.batches += 1
        if self.epoch != key.epoch:
            self.size = 0
        self.size += 1
        self.epoch = key.epoch
        self.last = key

    def end_epoch(self) -> Record:
        """End the current epoch, and return the line that says so."""
        assert self.epoch is not None
        record: Record = {
            "kind": "epoch",
            "epoch": self.epoch,
            "batches": self.size,
            "digest": self.digest,
        }
        self.epochs += 1
        self.last = Key(self.epoch, math.inf)
        self.epoch = None
        return record


# --- a batch's fingerprints: taken by the worker, so that the user's thread hashes nothing --------

#: Of batches with more keys than this only the whole has a fingerprint.
MOST_KEYS = 64

#: (fingerprint of the whole, fingerprints by key, seconds that the batch took, process number). A
#: fingerprint is None where there are no bytes that would be the same everywhere.
BatchRecord = tuple[str | None, dict[str, str | None], float, int]


def batch_record(batch: Any, seconds: float, left_out: Collection[str] = ()) -> BatchRecord:
    """Return the record of a batch that took `seconds` to make."""
    return (*batch_fingerprints(batch, left_out), seconds, os.getpid())


def batch_fingerprints(
    batch: Any, left_out: Collection[str] = ()
) -> tuple[str | None, dict[str, str | None]]:
    """Return (fingerprint of the whole, fingerprints by key), without the keys in `left_out`.

    Every byte is read once: the whole of a dict is ``fingerprint({key: fingerprint(value), ...})``,
    that of a list or tuple ``fingerprint([fingerprint(item), ...])`` or of a tuple of these, with
    the positions as keys; all else is ``fingerprint(batch)``, without keys.
    """
    if type(batch) not in (dict, list, tuple) or not 0 < len(batch) <= MOST_KEYS:
        return fingerprint_or_none(batch), {}
    if type(batch) is dict:
        if not all(type(key) is str for key in batch):
            return fingerprint_or_none(batch), {}
        items = batch
    else:
        items = {str(index): item for index, item in enumerate(batch)}
    keys = {key: fingerprint_or_none(value) for key, value in items.items() if key not in left_out}
    if type(batch) is dict:
        return fingerprint(keys), keys
    return fingerprint(type(batch)(keys.values())), keys
