"""Reads ledgers, line by line, and says what they add up to and what is wrong with them."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from detaug.ledger.header import FORMAT, IDENTITY, WHAT, Record
from detaug.ledger.lines import Course, Damaged, Key, NotALedger, decoded, key_of, read_lines

#: Entries of every header, and what they are.
_KINDS: dict[str, Any] = {"name": str, "detaug": str, "declared": list, "environment": dict}
_KINDS |= {"rank": int, "world_size": int, "batches_per_epoch": (int, type(None))}


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


class LedgerSummary:
    """What a ledger adds up to, read from its first line to its last, or as far as it goes `before` a key.

    Attributes:
        header: the first line.
        course: the batches so far, and their digest.
        size: bytes of the lines that were read.

    Raises:
        Damaged: a line is none of a ledger's, or does not belong where it is; the message names the first.
        NotALedger, OSError: see `read_header`.
    """

    def __init__(self, path: Path, before: Key | None = None) -> None:
        self.header = read_header(path)
        self.course = Course(self.header)
        self.size = len(next(read_lines(path)))
        for line in records(path):
            if before is not None and line.key >= before:
                break
            fault = self._add(line)
            if fault:
                raise Damaged(f"{path} is damaged: {line.text} {fault}")
            self.size = line.size

    def _add(self, line: Line) -> str:
        """Add a line; return what is wrong with it, "" where nothing is."""
        course = self.course
        if course.last is not None and line.key <= course.last:
            return f"stands after {course.last.text}"
        if line.record["kind"] == "batch":
            if course.epoch not in (None, line.key.epoch):
                return f"comes before epoch {course.epoch} has ended"
            course.add(line.record)
            return ""
        if course.epoch != line.key.epoch:
            return "has no batches before it"
        end = course.end_epoch()
        if any(line.record.get(name) != end[name] for name in ("batches", "digest")):
            return "does not follow from the lines before it: one was changed, or is missing or elsewhere"
        return ""
