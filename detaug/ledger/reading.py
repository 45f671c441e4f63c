"""Reads ledgers, line by line, and says what they add up to and what is wrong with them."""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from detaug.ledger.header import FORMAT, IDENTITY, WHAT, Record, digest
from detaug.ledger.lines import Course, Damaged, Key, NotALedger, decoded, key_of, read_lines

#: Entries of every header, and what they are.
_KINDS: dict[str, Any] = {"name": str, "detaug": str, "declared": list, "environment": dict}
_KINDS |= {"rank": int, "world_size": int, "batches_per_epoch": (int, type(None))}
#: So many faults are told one by one.
_MOST_FAULTS = 12
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


def records(path: Path, damaged: Callable[[int, Damaged], None] | None = None) -> Iterator[tuple[int, Key, Record]]:
    """(number of the line, from 1, where it stands, record) of all lines but the header. Lines that are none of a ledger's are
    told to `damaged` and passed over; without it, the first is a `NotALedger` that says which."""
    for number, line in enumerate(read_lines(path), 1):
        if number == 1:
            continue
        try:
            record = decoded(line)
            key = key_of(record)
        except Damaged as error:
            if damaged is None:
                raise NotALedger(f"line {number} of {path} is damaged: {error}") from None
            damaged(number, error)
        else:
            yield number, key, record


def course_before(path: Path, key: Key) -> tuple[Course, int]:
    """Where a ledger stood before that key, so that it can go on from there, and after how many bytes. Errors as `records`."""
    course, lines = Course(read_header(path)), 1
    for number, at, record in records(path):
        if at >= key:
            break
        if course.epoch not in (None, at.epoch):
            course.end_epoch()
        if record["kind"] == "batch":
            course.add(record)
        elif course.epoch is not None:
            course.end_epoch()
        lines = number
    return course, sum(map(len, islice(read_lines(path), lines)))


class Sum:
    """What a ledger adds up to, read from its first line to its last, or for so many batches (`up_to`).

    Attributes:
        keys: in how many batches each key has a fingerprint.
        by_epoch: number of batches of each epoch.
        gaps: (epoch, steps without a line that are between or before others).
        faults: what is wrong with the file, in words; at most twelve.
        taken: the batches whose numbers (from 0) are `wanted`.
    """

    def __init__(self, path: Path, up_to: int | None = None, wanted: Collection[int] = ()) -> None:
        self.header = read_header(path)
        self.course = Course(self.header)
        self.first: Key | None = None
        self.last: Key | None = None
        self.keys: Counter[str] = Counter()
        self.by_epoch: dict[int, int] = {}
        self.gaps: list[tuple[int, range]] = []
        self.faults: list[str] = []
        self.taken: list[Record] = []
        self.goes_on = False
        self._is_broken = False  # a line did not fit: those behind it cannot
        self._due = 0.0  # the place that follows from the last one
        self._wrapped = False  # the epoch has had a place that is padding
        wanted = frozenset(wanted)
        if digest(self.header["declared"]) != self.header["pipeline"]:
            self._fault("the header's description of the pipeline is not the one of which it has the digest")
        for number, key, record in records(path, lambda line, error: self._fault(f"line {line} is damaged: {error}")):
            is_batch = record["kind"] == "batch"
            if is_batch and self.course.batches == up_to:
                self.goes_on = True
                break
            if not is_batch:
                self._end_epoch(record, number)
                continue
            if self.course.batches in wanted:
                self.taken.append(record)
            self._batch(record, key, number)

    @property
    def missing(self) -> int:
        """How many steps are in the gaps."""
        return sum(len(steps) for _, steps in self.gaps)

    def missing_step(self, number: int) -> tuple[int, int]:
        """(epoch, step) of one of these, by its number from 0."""
        for epoch, steps in self.gaps:
            if number < len(steps):
                return epoch, steps[number]
            number -= len(steps)
        raise IndexError(f"there are only {self.missing} steps without a line")

    def _fault(self, text: str) -> None:
        if len(self.faults) < _MOST_FAULTS:
            self.faults.append(text)

    def _batch(self, record: Record, key: Key, number: int) -> None:
        course, line = self.course, f"line {number}, {key.text}"
        if course.last is not None and key <= course.last:
            self._fault(f"{line}, stands behind {course.last.text}")
        if record.get("name") != self.header["name"]:
            self._fault(f"{line}, is of {record.get('name')!r}, not of {self.header['name']!r}")
        if course.epoch not in (None, key.epoch):
            self._fault(f"epoch {course.epoch} has no line that ends it")
            course.end_epoch()
        if course.epoch is None:
            # A ledger may begin in the middle of an epoch, and its ranks' rounds there too.
            self._due, self._wrapped = (key.place if self.first is None else self.header["rank"]), False
        right = course.add(record)
        self._check_place(record, key, line)
        self._check_digest(right, record, f"line {number} ({key.text})")
        self.by_epoch[key.epoch] = course.size
        self.keys.update(name for name, value in record["keys"].items() if value is not None)
        self.first, self.last = self.first or key, key

    def _check_place(self, record: Record, key: Key, line: str) -> None:
        """That it is this rank's, and of this epoch; steps that were passed over are gaps."""
        header, place, step = self.header, int(key.place), record["step"]
        stride, total = int(header["world_size"]), header.get("batches_per_epoch")
        padded = place != step
        if padded:  # the places behind an epoch's end have the steps of its start, one for each rank
            first = place - step if total is None else total
            right = header.get("tail") == "pad" and 0 < first <= place < first + stride and not self._wrapped
            right = right and step == (place - first) % first
        else:
            right = 0 <= place < (_MOST_STEPS if total is None else total)
        if not right:
            self._fault(f"{line}: no epoch has step {step} there")
        elif (place - self._due) % stride:
            self._fault(f"{line}, is none of rank {header['rank']} of {stride}")
        elif place > self._due:
            self.gaps.append((key.epoch, range(int(self._due), place, stride)))
        self._due, self._wrapped = place + stride, padded

    def _check_digest(self, right: str, record: Record, line: str) -> None:
        if record.get("digest") != right and not self._is_broken:
            self._is_broken = True
            self._fault(f"{line} does not follow from the lines before: it was changed, or one is missing or elsewhere")

    def _end_epoch(self, record: Record, number: int) -> None:
        epoch = record["epoch"]
        if self.course.epoch != epoch:
            self._fault(f"line {number} ends epoch {epoch}, of which there are no batches before it")
            return
        right = self.course.end_epoch()
        if record.get("batches") != right["batches"]:
            self._fault(f"epoch {epoch} has {right['batches']} batches, and its last line says {record.get('batches')}")
        self._check_digest(right["digest"], record, f"line {number} (the end of epoch {epoch})")
