"""A ledger's lines: JSON objects.

{"kind":"header","format":3, ...what was run (`detaug.ledger.header`)...}
{"kind":"batch","name":"train","epoch":0,"step":0,"whole":"...","keys":{...},"waited":...,...,"digest":"..."}
{"kind":"epoch","epoch":0,"batches":250,"digest":"..."}

They stand in the order of their epochs and steps: where a run goes back, what is behind is cut off.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

Record = dict[str, Any]


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


def encoded(record: Record) -> bytes:
    """The line of a record, with its line feed."""
    return json.dumps(record, separators=(",", ":"), allow_nan=False).encode() + b"\n"


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


def key_of(record: Record) -> Key:
    """Where a record stands; an epoch's end stands behind all its batches.

    Raises:
        Damaged: it does not say.
    """
    epoch, place = record.get("epoch"), record.get("place", record.get("step"))
    if record["kind"] == "epoch":
        place = float("inf")
    elif type(place) is not int:
        place = None
    if type(epoch) is not int or place is None:
        raise Damaged("it does not say which epoch and step it is about")
    return Key(epoch, place)
