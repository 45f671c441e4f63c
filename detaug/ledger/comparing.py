"""Two ledgers, compared line by line: equal, or the first difference and its likely cause."""

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

from detaug.ledger.header import IDENTITY, Record, lasting
from detaug.ledger.lines import Key
from detaug.ledger.reading import read_header, records
from detaug.objects.differences import differences, differing_names, values_by_name
from detaug.objects.walking import flat
from detaug.system.escaping import short

#: Relations of the batches of two ledgers, as they are counted and shown.
EQUAL = "equal"
DIFFERENT = "different"
ONLY_IN_A = "only in a"
ONLY_IN_B = "only in b"

#: Differences of headers, and keys of a batch, that are shown.
_MOST_DIFFERENCES = 8
_MOST_KEYS = 8

#: An entry that differs between two headers: (name, value in a, value in b).
HeaderDifference = tuple[str, Any, Any]

#: A batch of a ledger: where it stands, the relation if the other has none there, and its
#: fingerprints (whole, by key).
_Batch = tuple[Key, str, tuple[str | None, dict[str, str | None]]]


@dataclass
class Comparison:
    """The result of comparing two ledgers, a and b.

    Attributes:
        header: entries in which the headers differ.
        counts: numbers of batches by their relation.
        first: the first batch that is not equal; None: all are.
        first_is: the relation of the first.
        keys: those of its keys that differ.
    """

    header: list[HeaderDifference]
    counts: Counter[str] = field(default_factory=Counter)
    first: Key | None = None
    first_is: str = ""
    keys: tuple[str, ...] = ()

    def render(self, a: str, b: str) -> Iterator[Text]:
        """Yield one screen of lines, in which the two have these names."""
        if self.first is None:
            yield Text(f"equal: all {self.counts[EQUAL]:,} batches", "green")
            if self.header:
                yield Text("what differs in the headers has changed no batch:")
                yield from header_lines(self.header, "in a", "in b")
            return
        verbs = {DIFFERENT: "differs", ONLY_IN_A: f"is only in {a}", ONLY_IN_B: f"is only in {b}"}
        keys = f", in {listed(self.keys)}" if self.keys else ""
        yield Text(
            f"{self.first.text} is the first batch that {verbs[self.first_is]}{keys}", "bold red"
        )
        relations = (EQUAL, DIFFERENT, ONLY_IN_A, ONLY_IN_B)
        yield Text("; ".join(f"{relation}: {self.counts[relation]:,}" for relation in relations))
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
    """Return the first keys of a batch as text."""
    return ", ".join(short(repr(key)) for key in keys[:_MOST_KEYS])


def header_lines(differences: Sequence[HeaderDifference], a: str, b: str) -> Iterator[Text]:
    """Yield lines about the first differences of two headers, which are called `a` and `b`."""
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
    comparison = Comparison(header_differences(read_header(a), read_header(b)))
    # Both files are in the order of their keys, so that one batch of each is in memory.
    both = heapq.merge(_batches(a, ONLY_IN_A), _batches(b, ONLY_IN_B), key=itemgetter(0))
    for key, group in groupby(both, key=itemgetter(0)):
        # At most one batch of each ledger: `records` refuses a key that comes twice.
        relation, keys = _relation(list(group))
        comparison.counts[relation] += 1
        if comparison.first is None and relation != EQUAL:
            comparison.first = key
            comparison.first_is = relation
            comparison.keys = keys
    return comparison


def _relation(batches: list[_Batch]) -> tuple[str, tuple[str, ...]]:
    """Return the relation of the one or two batches that stand at a key, and keys that differ."""
    if len(batches) == 1:
        ((_, only_here, _),) = batches
        return only_here, ()
    (_, _, in_a), (_, _, in_b) = batches
    # The whole is compared, too: batches with very many keys have no fingerprints by key.
    if in_a == in_b:
        return EQUAL, ()
    return DIFFERENT, tuple(differing_names(in_a[1], in_b[1]))


def _batches(path: Path, only_here: str) -> Iterator[_Batch]:
    """Yield the batches of a ledger.

    Args:
        path: of the ledger.
        only_here: the relation of batches that the other ledger does not have.
    """
    for line in records(path):
        if line.record["kind"] == "batch":
            yield line.key, only_here, (line.record["whole"], line.record["keys"])


def header_differences(a: Record, b: Record) -> list[HeaderDifference]:
    """Return what differs in two headers, the most likely cause first.

    That is what decides about batches, then the rest, then the machine's properties.
    """
    declared = values_by_name(a["declared"])
    other_declared = values_by_name(b["declared"])
    # The order matters, since a message shows only the first differences.
    result = list(differences(_identity(a), _identity(b)))
    for name, value, other_value in differences(declared, other_declared):
        result.append((f"pipeline: {name}", value, other_value))
    result += differences(_further_facts(a), _further_facts(b))
    # The digests differ, and no entry does: the same lines stand in another order.
    if a["pipeline"] != b["pipeline"] and declared == other_declared:
        result.append(("pipeline", "the same parameters", "in another order"))
    result += differences(lasting(a["environment"]), lasting(b["environment"]))
    return result


def _identity(header: Record) -> dict[str, Any]:
    """Return the entries that batches depend on, by their names in messages; not the pipeline."""
    return {text: header.get(name) for name, text in IDENTITY.items() if name != "pipeline"}


def _further_facts(header: Record) -> dict[str, Any]:
    """Return the entries, flat, that are compared nowhere else."""
    known = {*IDENTITY, "kind", "what", "format", "declared", "environment", "detaug"}
    return dict(flat({name: value for name, value in header.items() if name not in known}))
