"""Two ledgers, line by line: equal, or where they begin to differ, and what may be why."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from rich.text import Text

from detaug.differences import differences, differing_names
from detaug.ledger.header import IDENTITY, Record, by_name, flat, lasting
from detaug.ledger.lines import Key
from detaug.ledger.reading import read_header, records
from detaug.reports.escaping import short

#: What a batch of two ledgers may be.
EQUAL, DIFFERENT, ONLY = "equal", "different", {"a": "only in a", "b": "only in b"}
_MOST_DIFFERENCES, _MOST_KEYS = 8, 8


#: What two headers have that is not the same: its name, and what it is in each.
HeaderDifference = tuple[str, Any, Any]


@dataclass
class Comparison:
    """What two ledgers have in common: how many batches are equal, different, only in a or b
    (`counts`); the `first` that is not equal, what it is, and in which of its `keys` it differs;
    what differs in the headers.
    """

    header: list[HeaderDifference]
    counts: Counter[str] = field(default_factory=Counter)
    first: Key | None = None
    first_is: str = ""
    keys: tuple[str, ...] = ()

    def shown(self, a: str, b: str) -> Iterator[Text]:
        """One screen, with these names for the two."""
        if self.first is None:
            yield Text(f"equal: all {self.counts[EQUAL]:,} batches", "green")
            if self.header:
                yield Text("what differs in the headers has changed no batch:")
                yield from header_lines(self.header, "in a", "in b")
            return
        where = {DIFFERENT: "differs", ONLY["a"]: f"is only in {a}", ONLY["b"]: f"is only in {b}"}[
            self.first_is
        ]
        keys = f", in {listed(self.keys)}" if self.keys else ""
        yield Text(f"{self.first.text} is the first batch that {where}{keys}", "bold red")
        yield Text(
            "; ".join(
                f"{what}: {self.counts[what]:,}" for what in (EQUAL, DIFFERENT, *ONLY.values())
            )
        )
        if not self.counts[DIFFERENT]:
            yield Text(
                "whatever both have is equal: one run ended earlier, left batches out, or was of"
                " another rank"
            )
        if self.header:
            yield Text("the headers differ in (the most likely cause first):")
            yield from header_lines(self.header, "in a", "in b")
        elif self.counts[DIFFERENT]:
            yield Text(
                "the headers do not differ: the pipeline itself may not be deterministic (detaug"
                " verify finds the line)"
            )


def listed(keys: Sequence[str]) -> str:
    """Keys of a batch, for the reader."""
    return ", ".join(short(repr(key)) for key in keys[:_MOST_KEYS])


def header_lines(differences: Sequence[HeaderDifference], a: str, b: str) -> Iterator[Text]:
    """For the reader, who knows the two as these."""
    for name, one, other in differences[:_MOST_DIFFERENCES]:
        yield Text(f"  {short(name)}: {short(one)} {a}, {short(other)} {b}")
    if len(differences) > _MOST_DIFFERENCES:
        yield Text(f"  and {len(differences) - _MOST_DIFFERENCES} more")


def compare(a: Path, b: Path) -> Comparison:
    """Compare two ledgers in bounded memory.

    Raises:
        OSError: one cannot be read.
        NotALedger: one is no ledger, or damaged.
    """
    found = Comparison(header_differences(read_header(a), read_header(b)))
    both = heapq.merge(_batches(a, "a"), _batches(b, "b"), key=itemgetter(0))
    for key, group in groupby(both, key=itemgetter(0)):
        (_, where, ours), *other = group
        keys: tuple[str, ...] = ()
        if other:
            _, _, theirs = other[0]
            what, keys = (
                EQUAL if ours == theirs else DIFFERENT,
                tuple(differing_names(ours[1], theirs[1])),
            )
        else:
            what = ONLY[where]
        found.counts[what] += 1
        if found.first is None and what != EQUAL:
            found.first, found.first_is, found.keys = key, what, keys
    return found


def _batches(
    path: Path, where: str
) -> Iterator[tuple[Key, str, tuple[Any, dict[str, str | None]]]]:
    for line in records(path):
        if line.record["kind"] == "batch":
            yield line.key, where, (line.record["whole"], line.record["keys"])


def header_differences(a: Record, b: Record) -> list[HeaderDifference]:
    """What differs in two headers, the most likely cause first: what decides about batches, then
    the rest, then of the machine what may change them.
    """
    known = {*IDENTITY, "kind", "what", "format", "declared", "environment", "detaug"}

    def parts(header: Record) -> Iterator[dict[str, Any]]:
        yield {text: header.get(name) for name, text in IDENTITY.items() if name != "pipeline"}
        yield {f"pipeline: {path}": value for path, value in by_name(header["declared"]).items()}
        yield dict(flat({name: value for name, value in header.items() if name not in known}))

    found = [
        each
        for ours, theirs in zip(parts(a), parts(b), strict=True)
        for each in differences(ours, theirs)
    ]
    if a["pipeline"] != b["pipeline"] and by_name(a["declared"]) == by_name(b["declared"]):
        found.append(("pipeline", "the same parameters", "in another order"))
    return found + environment_differences(a["environment"], b["environment"])


def environment_differences(a: Any, b: Any) -> list[HeaderDifference]:
    """What of two environments differs, the most likely cause first, as they have it."""
    return list(differences(lasting(a), lasting(b)))
