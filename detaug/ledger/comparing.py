"""Two ledgers, line by line: equal, or where they begin to differ, and what may be why."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from rich.text import Text

from detaug.ledger.header import IDENTITY, Record, by_name, lasting
from detaug.ledger.lines import Key
from detaug.ledger.notes import differing, without_print
from detaug.ledger.reading import read_header, records

#: Of the environment, by likelihood: what changes batches most easily comes first.
_LIKELY = ("detaug", "packages", "variables", "cpu", "numpy", "python", "system", "gpu", "blas", "switches", "threads")
_MOST_DIFFERENCES, _MOST_KEYS, _MOST_CHARACTERS = 8, 8, 60


class HeaderDifference(NamedTuple):
    """What two headers have that is not the same."""

    name: str
    a: Any
    b: Any


@dataclass
class Comparison:
    """What two ledgers have in common: how many batches, the `first` that differs (in these `keys`) or is only in "a" or "b", in
    how many each key differs, and in how many it is `untold`, without a fingerprint in either; what differs in the headers."""

    equal: int = 0
    different: int = 0
    only_a: int = 0
    only_b: int = 0
    first: Key | None = None
    first_in: str = ""
    keys: tuple[str, ...] = ()
    every_key: Counter[str] = field(default_factory=Counter)
    header: list[HeaderDifference] = field(default_factory=list)
    untold: Counter[str] = field(default_factory=Counter)

    def shown(self, a: str, b: str) -> Iterator[Text]:
        """One screen, with these names for the two."""
        if self.untold:
            yield Text(f"not compared, without bytes that are the same everywhere: {listed(self.untold)}", "yellow")
        if self.first is None:
            yield Text(f"equal: all {self.equal:,} batches", "green")
            if self.header:
                yield Text("what differs in the headers has changed no batch:")
                yield from header_lines(self.header, "in a", "in b")
            return
        where = {"a": f"is only in {a}", "b": f"is only in {b}", "both": "differs"}[self.first_in]
        keys = f", in {listed(self.keys)}" if self.keys else ""
        yield Text(f"{self.first.text} is the first batch that {where}{keys}", "bold red")
        yield Text(
            f"equal: {self.equal:,}; different: {self.different:,}; only in a: {self.only_a:,}; only in b: {self.only_b:,}"
        )
        if self.every_key:
            most = self.every_key.most_common(_MOST_KEYS)
            yield Text(f"different, by key: {', '.join(f'{key!r} {number:,}' for key, number in most)}")
        if not self.different:
            yield Text("whatever both have is equal: one run ended earlier, left batches out, or was of another rank")
        if self.header:
            yield Text("the headers differ in (the most likely cause first):")
            yield from header_lines(self.header, "in a", "in b")
        elif self.different:
            yield Text(
                "the headers do not differ: the pipeline itself may not be deterministic (detaug verify finds the line)"
            )

    def as_json(self) -> dict[str, Any]:
        """All of it."""
        first = None
        if self.first is not None:
            epoch, place = self.first
            first = {"epoch": epoch, "step": place, "in": self.first_in, "keys": list(self.keys)}
        own = ("equal", "different", "only_a", "only_b", "every_key", "untold")
        header = [each._asdict() for each in self.header]
        return {"is_equal": first is None, "first": first, "header": header} | {
            name: getattr(self, name) for name in own
        }


def listed(keys: Sequence[str] | Counter[str]) -> str:
    """Keys of a batch, for the reader."""
    return ", ".join(map(repr, list(keys)[:_MOST_KEYS]))


def short(value: Any) -> str:
    """A value on a line."""
    text = str(value)
    return text if len(text) <= _MOST_CHARACTERS else text[: _MOST_CHARACTERS - 1] + "…"


def header_lines(differences: Sequence[HeaderDifference], a: str, b: str) -> Iterator[Text]:
    """For the reader, who knows the two as these."""
    for each in differences[:_MOST_DIFFERENCES]:
        yield Text(f"  {each.name}: {short(each.a)} {a}, {short(each.b)} {b}")
    if len(differences) > _MOST_DIFFERENCES:
        yield Text(f"  and {len(differences) - _MOST_DIFFERENCES} more")


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
        prints = {where: print_ for _, where, print_ in group}
        keys: tuple[str, ...] = ()
        if len(prints) == 2:
            where, (ours, theirs) = "both", (prints["a"][1], prints["b"][1])
            found.untold.update(without_print(ours, theirs))
            if prints["a"] == prints["b"]:
                found.equal += 1
                continue
            keys = differing(theirs, ours)
            found.different += 1
            found.every_key.update(keys)
        else:
            (where,) = prints
            found.only_a += where == "a"
            found.only_b += where == "b"
        if found.first is None:
            found.first, found.first_in, found.keys = key, where, keys
    return found


def _batches(path: Path, where: str) -> Iterator[tuple[Key, str, tuple[Any, dict[str, str | None]]]]:
    for _, key, record in records(path):
        if record["kind"] == "batch":
            yield key, where, (record["whole"], record["keys"])


def header_differences(a: Record, b: Record) -> list[HeaderDifference]:
    """What differs in two headers, the most likely cause first: what decides about batches, then the rest, then of the machine
    what may change them."""
    known = {*IDENTITY, "kind", "what", "link", "format", "declared", "environment", "detaug"}

    def parts(header: Record) -> Iterator[dict[str, Any]]:
        yield {text: header.get(name) for name, text in IDENTITY.items() if name != "pipeline"}
        yield {f"pipeline: {path}": value for path, value in by_name(header["declared"]).items()}
        yield {name: value for name, value in header.items() if name not in known}

    found = [each for ours, theirs in zip(parts(a), parts(b), strict=True) for each in _differing(ours, theirs)]
    if a["pipeline"] != b["pipeline"] and by_name(a["declared"]) == by_name(b["declared"]):
        found.append(HeaderDifference("pipeline", "the same parameters", "in another order"))
    return found + environment_differences(a["environment"], b["environment"])


def environment_differences(a: Any, b: Any) -> list[HeaderDifference]:
    """What of two environments differs, the most likely cause first."""

    def likelihood(found: HeaderDifference) -> int:
        return next((i for i, each in enumerate(_LIKELY) if f"{found.name}.".startswith(f"{each}.")), len(_LIKELY))

    return sorted(_differing(lasting(a), lasting(b)), key=likelihood)


def _differing(ours: dict[str, Any], theirs: dict[str, Any]) -> list[HeaderDifference]:
    """The entries that are not the same."""
    both = {name: (ours.get(name, "absent"), theirs.get(name, "absent")) for name in {**ours, **theirs}}
    return [HeaderDifference(name, one, other) for name, (one, other) in both.items() if one != other]
