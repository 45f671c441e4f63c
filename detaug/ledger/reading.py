"""Read ledgers line by line, and say what is wrong with them."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from detaug.ledger.header import FORMAT, WHAT, Record
from detaug.ledger.lines import (
    InvalidLine,
    Key,
    NotALedger,
    RunningDigest,
    decoded,
    key_of,
    read_lines,
)
from detaug.seeding.tree import Seed
from detaug.system.escaping import short
from detaug.system.untrusted import conforms, is_small

#: Entries of every header, and their types.
_ENTRIES: dict[str, Any] = {
    "name": str,
    "detaug": str,
    "seed": Seed,
    "seed_scheme": int,
    "numerics": int,
    "pipeline": str,
    "declared": list[str],
    "num_streams": int,
    "batches_per_epoch": int | None,
    "rank": int,
    "world_size": int,
    "environment": dict[str, Any],
}
#: Entries that a header may lack.
_FURTHER: dict[str, Any] = {
    "stateless": bool | None,
    "keep": list[str],
    "version": str,
    "tail": str,
    "left_out": list[str],
}


def read_header(path: Path) -> Record:
    """Return a ledger's first line.

    Raises:
        FileNotFoundError: there is no such file.
        NotALedger: it is no ledger, or one of another format.
    """
    if not path.exists():
        raise FileNotFoundError(errno.ENOENT, "there is no such file", os.fspath(path))
    # A pipe could be read once only, and a ledger is read several times.
    if not path.is_file():
        raise NotALedger(f"{path} is no regular file, as a ledger must be")
    line = next(read_lines(path), b"")
    if not line:
        raise NotALedger(f"{path} is no ledger: it has no whole line")
    try:
        header = decoded(line)
    except InvalidLine:
        header = {}
    # Checked before the format, because other JSON files may have a "format" as well.
    if header.get("what") != WHAT:
        raise NotALedger(f"{path} is no ledger: its first line is none of a ledger's")
    if header.get("format") != FORMAT:
        raise NotALedger(
            f"{path} has format {short(repr(header.get('format')))}; this version of detaug reads"
            f" format {FORMAT}"
        )
    wrong = _wrong_entries(header)
    if wrong:
        raise NotALedger(
            f"{path} is no ledger of this version: {', '.join(wrong)} missing or wrong in its"
            " header"
        )
    return header


def _wrong_entries(header: Record) -> list[str]:
    """Return the names of a header's entries that are missing or wrong."""
    wrong = [name for name, kind in _ENTRIES.items() if not conforms(header.get(name), kind)]
    for name, kind in _FURTHER.items():
        if name in header and not conforms(header[name], kind):
            wrong.append(name)
    if not wrong and not is_small(header):
        return ["environment"]
    return wrong


class Line(NamedTuple):
    """A line of a ledger, except the header.

    Attributes:
        number: of the line, from 1.
        size: bytes of the file up to its end.
        key: where its batch stands.
        record: the line's own entries.
    """

    number: int
    size: int
    key: Key
    record: Record

    @property
    def text(self) -> str:
        """The words for it in messages."""
        return f"line {self.number} ({self.key.text})"


def records(path: Path) -> Iterator[Line]:
    """Yield all lines but the header.

    Raises:
        InvalidLine: a line is none of a ledger's, or not in its place.
    """
    size = 0
    last: Key | None = None
    for number, text in enumerate(read_lines(path), 1):
        size += len(text)
        # The header is read and checked by `read_header`.
        if number == 1:
            continue
        try:
            record = decoded(text)
            line = Line(number, size, key_of(record), record)
        except InvalidLine as error:
            raise InvalidLine(f"line {number} of {path} is damaged: {error}") from None
        if last is not None and line.key <= last:
            raise InvalidLine(f"{path} is damaged: {line.text} stands after {last.text}")
        last = line.key
        yield line


class LedgerSummary:
    """The result of reading a ledger from its first line to its last, or `before` a key.

    Attributes:
        header: the first line.
        running_digest: the digest and the counts of the lines that were read.
        size: bytes of the lines that were read.

    Raises:
        InvalidLine: a line is none of a ledger's, or does not belong where it is; the message names
            the first.
        NotALedger, OSError: see `read_header`.
    """

    def __init__(self, path: Path, before: Key | None = None) -> None:
        self.header = read_header(path)
        self.running_digest = RunningDigest(self.header)
        self.size = len(next(read_lines(path)))
        for line in records(path):
            if before is not None and line.key >= before:
                break
            fault = self._add(line)
            if fault:
                raise InvalidLine(f"{path} is damaged: {line.text} {fault}")
            self.size = line.size

    def _add(self, line: Line) -> str:
        """Add a line; return what is wrong with it, or ""."""
        digest = self.running_digest
        if line.record["kind"] == "batch":
            if digest.epoch not in (None, line.key.epoch):
                return f"comes before epoch {digest.epoch} has ended"
            digest.add(line.record)
            return ""
        # An epoch's end is written after its last batch, and never for an epoch without batches.
        if digest.epoch != line.key.epoch:
            return "has no batches before it"
        end = digest.end_epoch()
        if any(line.record.get(name) != end[name] for name in ("batches", "digest")):
            return (
                "does not follow from the lines before it: one was changed, or is missing or"
                " elsewhere"
            )
        return ""
