"""Two ledgers, line by line: equal, or where they begin to differ, and what may be why."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from detaug.ledger.header import IDENTITY, Record, by_name, lasting
from detaug.ledger.lines import Key, key_of
from detaug.ledger.notes import differing, is_mute, without_print
from detaug.ledger.reading import read_header, records

#: Of the environment, by likelihood: what changes batches most easily comes first.
_LIKELY = ("detaug", "packages", "variables", "cpu", "numpy", "python", "system", "gpu", "blas", "switches", "threads")


@dataclass
class HeaderDifference:
    """What two headers have that is not the same."""

    name: str
    a: Any
    b: Any


@dataclass
class Comparison:
    """What two ledgers have in common.

    Attributes:
        equal, different: batches that are in both.
        only_a, only_b: batches that are in one.
        first: the first batch that differs or is in one only; None: there is none.
        keys: in which keys the first one differs; empty where it is in one only.
        every_key: in how many batches each key differs.
        header: what differs in the headers, the most likely cause first.
        untold: in how many batches each key has no fingerprint in either.
        mute: of how many batches nothing has one in either; they are counted as equal.
    """

    equal: int = 0
    different: int = 0
    only_a: int = 0
    only_b: int = 0
    first: Key | None = None
    first_in: str = ""
    keys: tuple[str, ...] = ()
    every_key: dict[str, int] = field(default_factory=dict)
    header: list[HeaderDifference] = field(default_factory=list)
    untold: dict[str, int] = field(default_factory=dict)
    mute: int = 0

    @property
    def is_mute(self) -> bool:
        """Whether nothing was compared, although both have batches."""
        return self.mute > 0 and self.mute == self.equal and self.is_equal

    @property
    def is_equal(self) -> bool:
        """Whether both have the same batches."""
        return self.first is None


def compare(a: Path, b: Path, advanced: Callable[[int], None] = lambda _: None) -> Comparison:
    """Compare two ledgers in bounded memory.

    Raises:
        OSError: one cannot be read.
        NotALedger: one is no ledger, or damaged.
    """
    found = Comparison(header=header_differences(read_header(a), read_header(b)))
    both = heapq.merge(_batches(a, "a"), _batches(b, "b"), key=itemgetter(0))
    for number, (key, group) in enumerate(groupby(both, key=itemgetter(0)), 1):
        if number % 1000 == 0:
            advanced(1000)
        records = {where: record for _, where, record in group}
        if len(records) == 2:
            _compare_batch(found, key, records["a"], records["b"])
            continue
        (where,) = records
        found.only_a += where == "a"
        found.only_b += where == "b"
        _note_first(found, key, where)
    return found


def _batches(path: Path, where: str) -> Iterator[tuple[Key, str, Record]]:
    for _, record in records(path):
        if record["kind"] == "batch":
            yield key_of(record), where, record


def _compare_batch(found: Comparison, key: Key, one: Record, other: Record) -> None:
    ours, theirs = (keys if isinstance(keys := each.get("keys"), dict) else {} for each in (one, other))
    _count(found.untold, without_print(ours, theirs))
    if one.get("whole") == other.get("whole") and one.get("keys") == other.get("keys"):
        found.equal += 1
        found.mute += is_mute(one.get("whole"), ours)
        return
    keys = differing(theirs, ours)
    found.different += 1
    _count(found.every_key, keys)
    if found.first is None:
        found.keys = keys
    _note_first(found, key, "both")


def _count(counts: dict[str, int], names: Iterable[str]) -> None:
    for name in names:
        counts[name] = counts.get(name, 0) + 1


def _note_first(found: Comparison, key: Key, where: str) -> None:
    if found.first is None:
        found.first, found.first_in = key, where


def header_differences(a: Record, b: Record) -> list[HeaderDifference]:
    """What differs in two headers, the most likely cause first: what decides about batches, then what of the machine may change
    them, then the rest."""
    found = []
    for name, text in IDENTITY.items():
        if name == "pipeline":
            found += _declared_differences(a, b)
        elif a.get(name) != b.get(name):
            found.append(HeaderDifference(text, a.get(name), b.get(name)))
    known = {*IDENTITY, "kind", "what", "link", "format", "declared", "environment", "detaug"}
    others = [name for name in {**a, **b} if name not in known and a.get(name) != b.get(name)]
    found += [HeaderDifference(name, a.get(name), b.get(name)) for name in others]
    return found + environment_differences(a["environment"], b["environment"])


def environment_differences(a: Any, b: Any) -> list[HeaderDifference]:
    """What of two environments differs, the most likely cause first."""
    ours, theirs = lasting(a), lasting(b)
    names = [name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name)]

    def likelihood(name: str) -> int:
        return next((i for i, each in enumerate(_LIKELY) if name == each or name.startswith(f"{each}.")), len(_LIKELY))

    return [HeaderDifference(name, ours.get(name), theirs.get(name)) for name in sorted(names, key=likelihood)]


def _declared_differences(a: Record, b: Record) -> list[HeaderDifference]:
    ours, theirs = by_name(a["declared"]), by_name(b["declared"])
    if a["declared"] == b["declared"]:
        return []
    found = [
        HeaderDifference(f"pipeline: {path}", ours.get(path, "absent"), theirs.get(path, "absent"))
        for path in {**ours, **theirs}
        if ours.get(path) != theirs.get(path)
    ]
    return found or [HeaderDifference("pipeline", "the same parameters", "in another order")]
