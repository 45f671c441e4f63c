"""Reads all of a ledger once, and says what it adds up to and what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from detaug.ledger import merkle
from detaug.ledger.course import Course
from detaug.ledger.files import read_lines
from detaug.ledger.lines import FIRST_LINK, Damaged, Key, Record, decoded, follows, key_of, leaf_of, own_link
from detaug.ledger.reading import read_header, turns_of

#: So many faults are told one by one.
_MOST_FAULTS = 12


@dataclass
class Taken:
    """A batch of a ledger, and what proves that it is one.

    Attributes:
        number: the how-manieth it is, from 0.
        record: its line.
        place, path: its place in its epoch's tree, and the hashes beside the way to the root.
        size, root: of that tree.
    """

    number: int
    record: Record
    place: int
    path: list[bytes] = field(default_factory=list)
    size: int = 0
    root: bytes = b""

    @property
    def is_proven(self) -> bool:
        """Whether its path leads to the root."""
        try:
            return merkle.root_by_path(leaf_of(self.record), self.place, self.size, self.path) == self.root
        except ValueError:
            return False


@dataclass
class Sum:
    """What a ledger adds up to.

    Attributes:
        header: its first line.
        batches, epochs: how many there are that count; epochs that have ended.
        head: of the chain behind the last batch that was counted.
        last: that batch.
        faults: what is wrong with the file, in words.
        stops: what "stopped" lines say.
        resumed, back: how often it was continued, and how often it went back without that.
        taken: the batches that were asked for.
        goes_on: there are more batches than were asked for.
        wrong_roots: (epoch, the chain up to and with it as its batches have it) where its line has another root.
    """

    header: Record
    batches: int = 0
    epochs: int = 0
    head: str = ""
    last: Key | None = None
    faults: list[str] = field(default_factory=list)
    stops: list[Record] = field(default_factory=list)
    resumed: int = 0
    back: int = 0
    taken: list[Taken] = field(default_factory=list)
    goes_on: bool = False
    wrong_roots: list[tuple[int, str]] = field(default_factory=list)

    def fault(self, text: str) -> None:
        """Add one."""
        if len(self.faults) < _MOST_FAULTS:
            self.faults.append(text)
        elif len(self.faults) == _MOST_FAULTS:
            self.faults.append("... and more")


def sum_up(
    path: Path,
    up_to: int | None = None,
    wanted: Collection[int] = (),
    advanced: Callable[[int], None] = lambda _: None,
) -> Sum:
    """Read a ledger from its first line to its last.

    Memory is bounded, but for 32 bytes for each batch of an epoch from which batches are wanted.

    Args:
        path: of the ledger.
        up_to: only so many batches are counted.
        wanted: numbers (from 0) of batches to be taken out, with their paths.
        advanced: is called with the numbers of lines that were read since the last call.

    Raises:
        OSError: it cannot be read.
        NotALedger: it is no ledger.
    """
    return _Reader(path, up_to, frozenset(wanted), advanced).read()


class _Reader:
    def __init__(self, path: Path, up_to: int | None, wanted: frozenset[int], advanced: Callable[[int], None]) -> None:
        self._path, self._up_to, self._wanted, self._advanced = path, up_to, wanted, advanced
        self._sum = Sum(read_header(path))
        self._course = Course(self._sum.header)
        self._leaves: list[bytes] = []
        self._taken_here: list[Taken] = []
        self._previous: Key | None = None

    def read(self) -> Sum:
        turns = turns_of(self._path)
        link, number = FIRST_LINK, 0
        for number, line in enumerate(read_lines(self._path), 1):
            found = follows(line, link)
            if found is None:
                self._sum.fault(f"line {number}{self._about(line)} does not follow from the line before: {_WHY}")
            link = own_link(line) if found is None else found
            if number % 1000 == 0:
                self._advanced(1000)
            if number == 1:
                continue
            try:
                self._take(decoded(line), number, turns.counts)
            except Damaged as error:
                self._sum.fault(f"line {number} is damaged: {error}")
        self._close_epoch()
        if self._up_to is None or self._sum.batches < self._up_to:
            self._sum.head, self._sum.epochs = self._course.head(), self._course.epochs
        return self._sum

    def _take(self, record: Record, number: int, counts: Callable[[int, Key], bool]) -> None:
        kind = record["kind"]
        if kind in ("back", "resumed"):
            self._sum.resumed += kind == "resumed"
            self._sum.back += kind == "back"
            return
        key = key_of(record)
        if not counts(number, key):
            return
        if kind == "stopped":
            self._sum.stops.append(record)
        elif kind == "epoch":
            self._end_epoch(record, number)
        elif kind == "batch":
            self._batch(record, key, number)
        else:
            raise Damaged(f"there are no lines of the kind {kind!r}")

    def _batch(self, record: Record, key: Key, number: int) -> None:
        found = self._sum
        if found.batches == self._up_to:
            found.goes_on = True
            return
        if self._previous is not None and key <= self._previous:
            found.fault(f"line {number}, {key.text}, stands behind {self._previous.text}")
        self._previous = key
        if self._course.epoch not in (None, key.epoch):
            self._close_epoch()
            self._course.end_epoch()
            found.fault(f"epoch {self._course.last.epoch if self._course.last else 0} has no line that ends it")
        self._course.add(record, key)
        if found.batches in self._wanted:
            self._taken_here.append(Taken(found.batches, record, len(self._leaves)))
        if self._wanted:
            self._leaves.append(leaf_of(record))
        found.batches, found.last = found.batches + 1, key
        if found.batches == self._up_to:  # an epoch that goes on behind it counts as if it ended here
            found.head, found.epochs = self._course.head(), self._course.epochs
            self._close_epoch()

    def _end_epoch(self, record: dict[str, Any], number: int) -> None:
        if self._sum.goes_on:
            return
        self._close_epoch()
        epoch = record["epoch"]
        if self._course.epoch != epoch:
            self._sum.fault(f"line {number} ends epoch {epoch}, of which there are no batches before it")
            return
        right = self._course.end_epoch()
        if record.get("batches") != right["batches"]:
            self._sum.fault(
                f"epoch {epoch} has {right['batches']} batches, and its last line says {record.get('batches')}"
            )
        elif record.get("root") != right["root"]:
            self._sum.fault(f"epoch {epoch}: its batches do not give the root that its last line has")
        elif record.get("chain") != right["chain"] and not self._sum.faults:
            self._sum.fault(f"epoch {epoch}: its last line is not chained to the epoch before")
        if record.get("root") != right["root"]:
            self._sum.wrong_roots.append((epoch, right["chain"]))

    def _close_epoch(self) -> None:
        """What was taken from the epoch that ends gets its path."""
        if self._taken_here:
            root = merkle.root_of(self._leaves)
            for each in self._taken_here:
                each.path, each.size, each.root = merkle.path(each.place, self._leaves), len(self._leaves), root
            self._sum.taken += self._taken_here
        self._taken_here, self._leaves = [], []

    @staticmethod
    def _about(line: bytes) -> str:
        try:
            record = decoded(line)
            return f" ({key_of(record).text})" if record["kind"] == "batch" else f" ({record['kind']})"
        except Damaged:
            return ""


_WHY = "it was changed, or one before it is missing or elsewhere"
