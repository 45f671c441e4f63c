"""What a benchmark row holds, and how rows are shown: one table for people, one JSON file for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.table import Table

from benchmarks.measure import Ratio


@dataclass(frozen=True)
class Check:
    """One measured quantity and the bound it is held to. A bound of None means: shown, not judged."""

    what: str
    value: float
    relation: Literal[">=", "<="] = ">="
    bound: float | None = None
    spread: tuple[float, float] | None = None
    unit: str = "x"

    @classmethod
    def of_ratio(
        cls, what: str, ratio: Ratio, relation: Literal[">=", "<="] = ">=", bound: float | None = None
    ) -> Check:
        """A check on the median of a ratio, with the rounds' range as its spread."""
        return cls(what, ratio.median, relation, bound, (ratio.lowest, ratio.highest))

    @property
    def reached(self) -> bool | None:
        """Whether the bound holds; None where there is none."""
        if self.bound is None:
            return None
        return self.value >= self.bound if self.relation == ">=" else self.value <= self.bound


@dataclass
class Row:
    """One line of the issue's table.

    Attributes:
        name: what was measured.
        unit: of `ours` and `peers`.
        ours: detaug's median.
        peers: the others' medians.
        checks: the ratios and their targets.
        repeats: rounds behind each median.
        settings: everything needed to repeat it.
        details: numbers shown in the JSON only.
        note: one sentence for the reader, where the numbers alone would mislead.
    """

    name: str
    unit: str
    ours: float
    peers: dict[str, float]
    checks: list[Check]
    repeats: int
    settings: dict[str, Any] = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)
    note: str = ""

    def as_json(self) -> dict[str, Any]:
        """Plain data, each check with its verdict."""
        plain = asdict(self)
        plain["checks"] = [{**asdict(check), "reached": check.reached} for check in self.checks]
        return plain


def show(rows: Sequence[Row], console: Console) -> None:
    """Print the table and, below it, the notes."""
    table = Table(title="detaug's engine against its peers", show_lines=True)
    for heading in ("what", "detaug", "peers", "ratio", "measured (range)", "target", "reached", "rounds"):
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(
            row.name,
            f"{_number(row.ours)} {row.unit}",
            "\n".join(f"{name} {_number(value)} {row.unit}" for name, value in row.peers.items()),
            "\n".join(check.what for check in row.checks),
            "\n".join(_measured(check) for check in row.checks),
            "\n".join("-" if c.bound is None else f"{c.relation} {_number(c.bound)} {c.unit}" for c in row.checks),
            "\n".join(_verdict(check) for check in row.checks),
            str(row.repeats),
        )
    console.print(table)
    for row in rows:
        if row.note:
            console.print(f"{row.name}: {row.note}", highlight=False)


def write_json(rows: Sequence[Row], environment: dict[str, Any], path: Path) -> None:
    """Write the environment's record and every row to a file."""
    record = {"environment": environment, "rows": [row.as_json() for row in rows]}
    path.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


def _measured(check: Check) -> str:
    spread = "" if check.spread is None else f" ({_number(check.spread[0])} - {_number(check.spread[1])})"
    return f"{_number(check.value)} {check.unit}{spread}"


def _verdict(check: Check) -> str:
    return {None: "-", True: "[green]yes[/green]", False: "[red]no[/red]"}[check.reached]


def _number(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
