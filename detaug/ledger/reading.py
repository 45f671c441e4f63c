"""A ledger as it counts: without the batches that a run went back over and had again."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from detaug.ledger.course import Course
from detaug.ledger.files import NotALedger, read_lines
from detaug.ledger.header import FORMAT, IDENTITY, WHAT
from detaug.ledger.lines import Damaged, Key, Record, decoded, key_of

#: Kinds of lines that say from where on the lines before them count no more.
TURNS = ("back", "resumed")
#: Entries of every header, and what they are.
_KINDS: dict[str, Any] = {"name": str, "detaug": str, "declared": list, "environment": dict}
_KINDS |= {"rank": int, "world_size": int, "batches_per_epoch": (int, type(None))}


def read_header(path: Path) -> Record:
    """A ledger's first line.

    Raises:
        OSError: the file cannot be read.
        NotALedger: it is no ledger, or one of another format.
    """
    if not path.exists():
        raise FileNotFoundError(errno.ENOENT, "there is no such file", os.fspath(path))
    if not path.is_file():  # a pipe could be read once only, and a ledger is read several times
        raise NotALedger(f"{path} is no regular file, as a ledger must be")
    line = next(read_lines(path), b"")
    if not line:
        raise NotALedger(f"{path} has no whole line: it is empty, cut off, or no ledger")
    try:
        found = decoded(line)
    except Damaged:
        found = {}
    if found.get("what") != WHAT:
        raise NotALedger(f"{path} is no ledger: its first line is none of a ledger's")
    if found.get("format") != FORMAT:
        raise NotALedger(f"{path} has format {found.get('format')!r}; this version of detaug reads format {FORMAT}")
    wrong = [name for name, kind in _KINDS.items() if not isinstance(found.get(name), kind)]
    wrong += [name for name in IDENTITY if name not in found and name not in wrong]
    if not wrong and not 0 <= found["rank"] < found["world_size"]:
        wrong = ["rank"]
    if not wrong and not all(isinstance(each, str) for each in found["declared"]):
        wrong = ["declared"]
    if wrong:
        raise NotALedger(f"{path} is no ledger of this version: {', '.join(wrong)} missing or wrong in its header")
    return found


@dataclass
class Turns:
    """Where the run went back, and what has counted since. From there on every earlier line counts no more.

    Attributes:
        at: (number of the line, from 1, the key from which on earlier lines do not count), in the file's order.
    """

    at: list[tuple[int, Key]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._limits: list[tuple[int, Key]] = []
        for number, key in reversed(self.at):
            if not self._limits or key < self._limits[-1][1]:
                self._limits.append((number, key))
        self._limits.reverse()  # of each, the lowest key of all that are behind

    def counts(self, number: int, key: Key) -> bool:
        """Whether the line with that number and key does. To be asked in the file's order."""
        while self._limits and self._limits[0][0] <= number:
            del self._limits[0]
        return not self._limits or key < self._limits[0][1]


def turns_of(path: Path) -> Turns:
    """Where the run went back. Errors as `read_lines`; damaged lines are passed over."""
    found = []
    starts = tuple(f'{{"kind":"{kind}"'.encode() for kind in TURNS)
    for number, line in enumerate(read_lines(path), 1):
        if line.startswith(starts):
            try:
                found.append((number, key_of(decoded(line))))
            except Damaged:
                continue
    return Turns(found)


def counting(
    path: Path, turns: Turns | None = None, damaged: Callable[[int, Damaged], None] | None = None
) -> Iterator[tuple[int, Record]]:
    """(number of the line, from 1, record) of all lines that count, but for the header and the turns.

    Args:
        path: of the ledger.
        turns: where the run went back; None: as the file says.
        damaged: is told lines that are none of a ledger's, which are then passed over.

    Raises:
        NotALedger: a line is none of a ledger's; the message says which.
        OSError: the file cannot be read.
    """
    turns = turns_of(path) if turns is None else turns
    for number, line in enumerate(read_lines(path), 1):
        if number == 1:
            continue
        try:
            record = decoded(line)
            if record["kind"] in TURNS or not turns.counts(number, key_of(record)):
                continue
        except Damaged as error:
            if damaged is None:
                raise NotALedger(f"line {number} of {path} is damaged: {error}") from None
            damaged(number, error)
            continue
        yield number, record


def course_before(path: Path, key: Key) -> Course:
    """Where a ledger stood before that key, so that it can go on from there. Errors as `counting`."""
    course = Course(read_header(path))
    turns = turns_of(path)
    for _, record in counting(path, Turns([*turns.at, (1 << 62, key)])):
        if record["kind"] == "batch":
            if course.epoch not in (None, record["epoch"]):
                course.end_epoch()
            course.add(record, key_of(record))
        elif record["kind"] == "epoch" and course.epoch is not None:
            course.end_epoch()
    return course
