"""A ledger's lines: JSON objects, each of which carries a hash of itself and of all lines before it (its *link*).

{"kind":"header","format":1, ...what was run (`detaug.ledger.header`)...,"link":"..."}
{"kind":"batch","name":"train","epoch":0,"step":0,"whole":"...","keys":{...},"waited":...,...,"link":"..."}
{"kind":"epoch","epoch":0,"batches":250,"root":"...","chain":"...","link":"..."}
{"kind":"back","epoch":0,"step":0,"link":"..."}         the run went back: what follows replaces all from there on
{"kind":"resumed","epoch":3,"step":0,"link":"..."}      the same, in another process; there may be nothing to replace
{"kind":"stopped","epoch":3,"step":9,"why":"...","link":"..."}      from there on nothing could be written
"""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any, NamedTuple

from detaug.ledger import merkle

Record = dict[str, Any]

#: The link of what is before the first line.
FIRST_LINK = "0" * 16
_LINK = b',"link":"'
_TAIL_BYTES = len(_LINK) + len(FIRST_LINK) + len(b'"}')


class Damaged(ValueError):
    """A line that no ledger has; the message says what is wrong with it."""


class Key(NamedTuple):
    """Where in its run's order a batch stands.

    Attributes:
        epoch: its epoch.
        place: its step, but in the last round of a padded epoch (`tail="pad"`), whose places have steps of the epoch's start.
    """

    epoch: int
    place: float

    @property
    def text(self) -> str:
        """For messages."""
        return f"epoch {self.epoch}, step {self.place}"


def encoded(record: Record, link: str) -> tuple[bytes, str]:
    """(the line with its line feed, its link), given the link of the line before."""
    text = json.dumps(record, separators=(",", ":"), allow_nan=False)
    own = _link_of(text.encode(), link)
    return f'{text[:-1]},"link":"{own}"}}\n'.encode(), own


def decoded(line: bytes) -> Record:
    """The record of a line.

    Raises:
        Damaged: it is none.
    """
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        raise Damaged("it is not JSON") from None
    if not isinstance(record, dict) or not isinstance(record.get("kind"), str):
        raise Damaged("it is no line of a ledger")
    return record


def follows(line: bytes, link: str) -> str | None:
    """The line's own link, if it is right for a line that comes after that one; else None."""
    line = line.rstrip(b"\n")
    body, tail = line[:-_TAIL_BYTES], line[-_TAIL_BYTES:]
    own = _link_of(body + b"}", link)
    return own if tail == _LINK + own.encode() + b'"}' else None


def own_link(line: bytes) -> str:
    """What a line says its link is."""
    return line.rstrip(b"\n")[-len(FIRST_LINK) - 2 : -2].decode("ascii", "replace")


def _link_of(text: bytes, link: str) -> str:
    return sha256(link.encode() + text).hexdigest()[: len(FIRST_LINK)]


def key_of(record: Record) -> Key:
    """Where a record stands; an epoch's end stands behind all its batches.

    Raises:
        Damaged: it does not say.
    """
    epoch, place = record.get("epoch"), record.get("place", record.get("step"))
    if record["kind"] == "epoch":
        place = float("inf")
    if type(epoch) is not int or not isinstance(place, (int, float)):
        raise Damaged("it does not say which epoch and step it is about")
    return Key(epoch, place)


def leaf_of(record: Record) -> bytes:
    """The hash by which a batch enters its epoch's tree: of its epoch, step and fingerprints, and of nothing that changes from
    run to run.

    Raises:
        Damaged: it has no fingerprints.
    """
    try:
        what = [record["epoch"], record["step"], record["whole"], record["keys"]]
    except KeyError as error:
        raise Damaged(f"a batch without {error}") from None
    if not isinstance(record["keys"], dict):
        raise Damaged("its fingerprints are not by key")
    return merkle.leaf(json.dumps(what, sort_keys=True, separators=(",", ":")).encode())
