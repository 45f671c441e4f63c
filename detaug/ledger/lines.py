"""A ledger's lines, JSON objects, and what they add up to: one running SHA-256 over the batches
that count, in their order.

{"kind":"header","format":3, ...what was run (`detaug.ledger.header`)...}
{"kind":"batch","name":"train","epoch":0,"step":0,"whole":"...","keys":{...},"waited":...,...}
{"kind":"epoch","epoch":0,"batches":250,"digest":"..."}

They stand in the order of their epochs and steps: where a run goes back, what is behind is cut off.
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
from detaug.fingerprints import fingerprint
from detaug.ledger.header import IDENTITY, Record
from detaug.reports.escaping import short
from detaug.reports.untrusted import conforms, lines_of, parse_json


class NotALedger(UnusableError):
    """The file is no ledger, or not one that this version of detaug reads; the message says why."""


class Damaged(NotALedger):
    """A line that no ledger has; the message says what is wrong with it."""


class Key(NamedTuple):
    """Where in its run's order a batch stands: at the place of its step, but for the last round of
    a padded epoch (`tail="pad"`), whose places have steps of the epoch's start.
    """

    epoch: int
    place: float

    @property
    def text(self) -> str:
        """For messages."""
        if self.place == math.inf:
            return f"the end of epoch {self.epoch}"
        return f"epoch {self.epoch}, step {self.place}"


def encoded(record: Record) -> bytes:
    """The line of a record, with its line feed."""
    return json.dumps(record, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def decoded(line: bytes) -> Record:
    """The record of a line; or `Damaged`."""
    try:
        record = parse_json(line)
    except ValueError:
        raise Damaged("it is not JSON") from None
    if not isinstance(record, dict):
        raise Damaged("it is no line of a ledger")
    return record


def key_of(record: Record) -> Key:
    """Where a batch stands; an epoch's end stands behind all its batches. Or `Damaged`, also where
    a fingerprint is missing.
    """
    kind = record.get("kind")
    if kind not in ("batch", "epoch"):
        raise Damaged(f"there are no lines of the kind {short(repr(kind))}")
    epoch = record.get("epoch")
    if kind == "epoch":
        if not _is_number(epoch):
            raise Damaged("it does not say which epoch it ends")
        return Key(epoch, math.inf)
    step = record.get("step")
    place = record.get("place", step)
    if not (_is_number(epoch) and _is_number(step) and _is_number(place)):
        raise Damaged("it does not say which epoch and step it is about")
    if not conforms(record.get("keys"), dict[str, str | None]):
        raise Damaged("its fingerprints are not by key")
    if "whole" not in record or not conforms(record["whole"], str | None):
        raise Damaged("it has no fingerprint of the whole")
    prints = record["keys"] or {"the batch": record["whole"]}
    mute = tuple(name for name, value in prints.items() if value is None)
    if mute:
        names = ", ".join(short(repr(name)) for name in mute)
        advice = f". Leave it out by check=Check(ignore={mute})" if record["keys"] else ""
        raise Damaged(
            f"there is no fingerprint of {names}: it is no array, tensor, number or string, nor a"
            f" container of these, and has no bytes that are the same everywhere{advice}"
        )
    return Key(epoch, place)


def _is_number(value: Any) -> TypeGuard[int]:
    """Whether it can be the number of an epoch or a step."""
    return type(value) is int and 0 <= value < 1 << 32


def read_lines(path: Path) -> Iterator[bytes]:
    """The whole lines, with their line feeds. What stands behind the last line feed was being
    written when the process or the machine stopped, and is left out.
    """
    try:
        for line in lines_of(path):
            if line.endswith(b"\n"):
                yield line
    except ValueError as error:
        raise Damaged(f"{path} is no ledger: {error}") from None


class Course:
    """Where a ledger stands after some of its lines. O(1) memory.

    The digest is SHA-256 of the identity of the run, a line feed, and for every batch its epoch,
    place where it is not the step, step and fingerprints and a line feed, as JSON. Nothing enters
    it that differs between two equal runs.

    So many `batches` in all, and `epochs` that have ended; the `epoch` that is going on has `size`
    of them.
    """

    def __init__(self, header: Record) -> None:
        self.header = header
        identity = json.dumps([header.get(name) for name in IDENTITY], separators=(",", ":"))
        self._hash = sha256(identity.encode() + b"\n")
        self.epochs = self.batches = self.size = 0
        self.epoch: int | None = None
        self.last: Key | None = None

    @property
    def digest(self) -> str:
        """64 hexadecimal digits, over all batches so far."""
        return self._hash.hexdigest()

    def add(self, record: Record) -> None:
        """Add a batch, of the epoch that is going on or of another, where none is; or raise
        `Damaged`.
        """
        key = key_of(record)
        what = [key.epoch, record.get("place"), record["step"], record["whole"], record["keys"]]
        self._hash.update(json.dumps(what, sort_keys=True, separators=(",", ":")).encode() + b"\n")
        self.batches += 1
        self.size = self.size + 1 if self.epoch == key.epoch else 1
        self.epoch = key.epoch
        self.last = key

    def end_epoch(self) -> Record:
        """The epoch that is going on has ended; the line that says so."""
        assert self.epoch is not None
        record: Record = {
            "kind": "epoch",
            "epoch": self.epoch,
            "batches": self.size,
            "digest": self.digest,
        }
        self.epochs, self.last = self.epochs + 1, Key(self.epoch, math.inf)
        self.epoch = None
        return record


# --- a batch's fingerprints, taken where the batch is made, so that the user's thread hashes nothin

#: Of batches with more keys than this only the whole has a fingerprint.
MOST_KEYS = 64

#: (fingerprint of the whole, fingerprints by key, seconds that the batch took, process number). A
#: fingerprint is None where there are no bytes that would be the same everywhere.
Note = tuple[str | None, dict[str, str | None], float, int]


def note_of(batch: Any, seconds: float, left_out: Collection[str] = ()) -> Note:
    """The note on a batch that took so long."""
    return (*prints_of(batch, left_out), seconds, os.getpid())


def prints_of(
    batch: Any, left_out: Collection[str] = ()
) -> tuple[str | None, dict[str, str | None]]:
    """(fingerprint of the whole, fingerprints by key), without the keys that are `left_out`.

    Every byte is read once: the whole of a dict is ``fingerprint({key: fingerprint(value), ...})``,
    that of a list or tuple ``fingerprint([fingerprint(item), ...])`` or of a tuple of these, with
    the positions as keys; all else is ``fingerprint(batch)``, without keys.
    """
    if (
        type(batch) is dict
        and 0 < len(batch) <= MOST_KEYS
        and all(type(key) is str for key in batch)
    ):
        keys = {key: _print_of(value) for key, value in batch.items() if key not in left_out}
        return fingerprint(keys), keys
    if type(batch) in (list, tuple) and 0 < len(batch) <= MOST_KEYS:
        keys = {str(i): _print_of(item) for i, item in enumerate(batch) if str(i) not in left_out}
        return fingerprint(type(batch)(keys.values())), keys
    return _print_of(batch), {}


def _print_of(value: Any) -> str | None:
    try:
        return fingerprint(value)
    except Exception:  # objects of the user's own; a ledger makes no batch fail
        return None
