"""Reads ledgers, line by line, and says what they add up to and what is wrong with them."""

from __future__ import annotations

import errno
import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from detaug.ledger.header import FORMAT, IDENTITY, WHAT, Record, digest
from detaug.ledger.lines import Course, Damaged, Key, NotALedger, decoded, key_of, read_lines

#: Entries of every header, and what they are.
_KINDS: dict[str, Any] = {"name": str, "detaug": str, "declared": list, "environment": dict}
_KINDS |= {"rank": int, "world_size": int, "batches_per_epoch": (int, type(None))}
#: As many as a seed tree has.
_MOST_STEPS = 1 << 32


def read_header(path: Path) -> Record:
    """A ledger's first line; `NotALedger` where the file is none, or one of another format."""
    if not path.exists():
        raise FileNotFoundError(errno.ENOENT, "there is no such file", os.fspath(path))
    if not path.is_file():  # a pipe could be read once only, and a ledger is read several times
        raise NotALedger(f"{path} is no regular file, as a ledger must be")
    line = next(read_lines(path), b"")
    if not line:
        raise NotALedger(f"{path} is no ledger: it has no whole line")
    try:
        found = decoded(line)
    except Damaged:
        found = {}
    if found.get("what") != WHAT:
        raise NotALedger(f"{path} is no ledger: its first line is none of a ledger's")
    if found.get("format") != FORMAT:
        raise NotALedger(
            f"{path} has format {found.get('format')!r}; this version of detaug reads format {FORMAT}"
        )
    wrong = [name for name, kind in _KINDS.items() if not isinstance(found.get(name), kind)]
    wrong += [name for name in IDENTITY if name not in found and name not in wrong]
    if wrong:
        raise NotALedger(
            f"{path} is no ledger of this version: {', '.join(wrong)} missing or wrong in its header"
        )
    return found


class Line(NamedTuple):
    """Of a ledger, but the header's: its number, from 1, how many bytes end with it, where its batch stands, and its record."""

    number: int
    size: int
    key: Key
    record: Record

    @property
    def text(self) -> str:
        """For messages."""
        end = self.record["kind"] == "epoch"
        return (
            f"line {self.number} ({f'the end of epoch {self.key.epoch}' if end else self.key.text})"
        )


def records(path: Path) -> Iterator[Line]:
    """All lines but the header. One that is none of a ledger's is `Damaged`."""
    size = 0
    for number, line in enumerate(read_lines(path), 1):
        size += len(line)
        if number == 1:
            continue
        try:
            record = decoded(line)
            found = Line(number, size, key_of(record), record)
        except Damaged as error:
            raise Damaged(f"line {number} of {path} is damaged: {error}") from None
        yield found


class Sum:
    """What a ledger adds up to, read from its first line to its last, or as far as it goes `before` a key.

    Attributes:
        size: bytes of these lines.
        missing: how many steps without a line are between or before others.
        taken: the batches whose numbers (from 0) are `wanted`.

    Raises:
        Damaged: a line is none of a ledger's, or does not belong where it is; the message names the first.
        NotALedger, OSError: see `read_header`.
    """

    def __init__(self, path: Path, wanted: Collection[int] = (), before: Key | None = None) -> None:
        self.header = read_header(path)
        self.course = Course(self.header)
        self.size = len(next(read_lines(path)))
        self.first: Key | None = None
        self.last: Key | None = None
        self.missing = 0
        self.taken: list[Record] = []
        self._due = 0.0  # the place that follows from the last one
        self._wrapped = False  # the epoch has had a place that is padding
        wanted, self._goes_on = frozenset(wanted), before is not None
        if digest(self.header["declared"]) != self.header["pipeline"]:
            raise Damaged(
                "the header's description of the pipeline is not the one of which it has the digest"
            )
        for line in records(path):
            if before is not None and line.key >= before:
                break
            if line.record["kind"] == "epoch":
                self._end_epoch(line)
            else:
                if self.course.batches in wanted:
                    self.taken.append(line.record)
                self._batch(line)
            self.size = line.size

    def _batch(self, line: Line) -> None:
        course, key, record = self.course, line.key, line.record
        if course.last is not None and key <= course.last:
            raise Damaged(f"{line.text} stands behind {course.last.text}")
        if record.get("name") != self.header["name"]:
            raise Damaged(
                f"{line.text} is of {record.get('name')!r}, not of {self.header['name']!r}"
            )
        if course.epoch not in (None, key.epoch):
            raise Damaged(f"{line.text}: epoch {course.epoch} has no line that ends it")
        if course.epoch is None:
            # A ledger may begin in the middle of an epoch, and its ranks' rounds there too.
            self._due, self._wrapped = (
                (key.place if self.first is None else self.header["rank"]),
                False,
            )
        self._check_place(line)
        _check(line, {"digest": course.add(record)})
        self.first, self.last = self.first or key, key

    def _check_place(self, line: Line) -> None:
        """That it is this rank's, and of this epoch; steps that were passed over are missing."""
        header, place, step = self.header, int(line.key.place), line.record["step"]
        stride, total = int(header["world_size"]), header.get("batches_per_epoch")
        padded = place != step
        if (
            padded
        ):  # the places behind an epoch's end have the steps of its start, one for each rank
            first = place - step if total is None else total
            right = (
                header.get("tail") == "pad"
                and 0 < first <= place < first + stride
                and not self._wrapped
            )
            right = right and step == (place - first) % first
        else:
            right = 0 <= place < (_MOST_STEPS if total is None else total)
        if not right:
            raise Damaged(f"{line.text}: no epoch has step {step} there")
        if (
            place - self._due
        ) % stride and not self._goes_on:  # which may be after rounds of other ranks
            raise Damaged(f"{line.text} is none of rank {header['rank']} of {stride}")
        self.missing += len(range(int(self._due), place, stride))
        self._due, self._wrapped = place + stride, padded

    def _end_epoch(self, line: Line) -> None:
        if self.course.epoch != line.record["epoch"]:
            raise Damaged(f"{line.text}: there are no batches of it before it")
        _check(line, self.course.end_epoch())


def _check(line: Line, right: Record) -> None:
    """That a line has what follows from those before it."""
    if any(line.record.get(name) != value for name, value in right.items()):
        raise Damaged(
            f"{line.text} does not follow from the lines before: it was changed, or one is missing or elsewhere"
        )
