"""Reads ledgers, line by line."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from detaug.ledger.course import Course
from detaug.ledger.files import NotALedger, read_lines
from detaug.ledger.header import FORMAT, IDENTITY, WHAT
from detaug.ledger.lines import Damaged, Key, Record, decoded, key_of

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


def records(path: Path, damaged: Callable[[int, Damaged], None] | None = None) -> Iterator[tuple[int, Record]]:
    """(number of the line, from 1, record) of all lines but the header.

    Args:
        path: of the ledger.
        damaged: is told lines that are none of a ledger's, which are then passed over.

    Raises:
        NotALedger: a line is none of a ledger's; the message says which.
        OSError: the file cannot be read.
    """
    for number, line in enumerate(read_lines(path), 1):
        if number == 1:
            continue
        try:
            record = decoded(line)
            key_of(record)
        except Damaged as error:
            if damaged is None:
                raise NotALedger(f"line {number} of {path} is damaged: {error}") from None
            damaged(number, error)
            continue
        yield number, record


def course_before(path: Path, key: Key) -> tuple[Course, int]:
    """Where a ledger stood before that key, so that it can go on from there, and after how many bytes. Errors as `records`."""
    course, size = Course(read_header(path)), 0
    for number, line in enumerate(read_lines(path), 1):
        try:
            record = decoded(line)
            if number > 1:
                at = key_of(record)
                if at >= key:
                    break
                if course.epoch not in (None, at.epoch):
                    course.end_epoch()
                if record["kind"] == "batch":
                    course.add(record, at)
                elif course.epoch is not None:
                    course.end_epoch()
        except Damaged as error:
            raise NotALedger(f"line {number} of {path} is damaged: {error}") from None
        size += len(line)
    return course, size
