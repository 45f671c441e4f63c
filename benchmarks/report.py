"""What a benchmark row holds, and how rows are shown: one table for people, one JSON file for programs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Literal

from rich.console import Console
from rich.table import Table

from benchmarks.measure import Ratio

Relation = Literal[">=", "<="]

ENGINE_TITLE = "detaug's engine against its peers (medians; ratios with the range over rounds)"

_DISTURBING = 0.1  # cores


@dataclass(frozen=True)
class Check:
    """detaug set against one other system or quantity.

    Attributes:
        against: its name.
        theirs: its median, in the row's unit; None where there is nothing but a bound.
        value: what is judged: a ratio, or detaug's own number where `theirs` is None.
        spread: the lowest and the highest `value` of any round.
        relation, bound: the target. A bound of None means: shown, not judged.
    """

    against: str
    theirs: float | None
    value: float
    spread: tuple[float, float]
    relation: Relation = ">="
    bound: float | None = None

    @property
    def reached(self) -> bool | None:
        """Whether the bound holds; None where there is none."""
        if self.bound is None:
            return None
        return self.value >= self.bound if self.relation == ">=" else self.value <= self.bound


def ratio_check(
    against: str, theirs: float, ratio: Ratio, relation: Relation = ">=", bound: float | None = None
) -> Check:
    """A check on a median ratio."""
    return Check(against, theirs, ratio.median, (ratio.lowest, ratio.highest), relation, bound)


def speed_checks(
    seconds: Mapping[str, Sequence[float]], bounds: Mapping[str, float], ours: str = "detaug"
) -> list[Check]:
    """detaug's batches/s over everyone else's, from seconds per batch in each round.

    Args:
        seconds: system → one number for each round.
        bounds: system → the least ratio that counts as reached; systems without one are shown only.
    """
    return [
        ratio_check(name, 1 / median(theirs), Ratio.of(theirs, seconds[ours]), ">=", bounds.get(name))
        for name, theirs in seconds.items()
        if name != ours
    ]


@dataclass
class Row:
    """One line of the issue's table.

    Attributes:
        name: what was measured.
        unit: of `ours` and of the checks' `theirs`.
        ours: detaug's median.
        checks: the comparisons and their targets.
        repeats: rounds behind each median.
        settings: everything needed to repeat it.
        details: numbers shown in the JSON only.
        cores_elsewhere: how many cores processes that do not belong to the benchmark kept busy meanwhile.
    """

    name: str
    unit: str
    ours: float
    checks: list[Check]
    repeats: int
    settings: dict[str, Any] = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)
    cores_elsewhere: float | None = None

    def as_json(self) -> dict[str, Any]:
        """Plain data, each check with its verdict."""
        plain = asdict(self)
        plain["checks"] = [{**asdict(check), "reached": check.reached} for check in self.checks]
        return plain


def show(rows: Sequence[Row], console: Console, title: str = ENGINE_TITLE) -> None:
    """Print the table: for each row, one line for each comparison."""
    table = Table(title=title)
    table.add_column("what")
    for heading in ("detaug", "against", "theirs", "ratio", "target", "reached"):
        table.add_column(heading, no_wrap=heading != "against", justify="left" if heading == "against" else "right")
    for row in rows:
        for number, check in enumerate(row.checks):
            table.add_row(
                f"{row.name} \\[{row.unit}], {row.repeats} rounds" if number == 0 else "",
                _number(row.ours) if number == 0 else "",
                check.against,
                "" if check.theirs is None else _number(check.theirs),
                f"{_number(check.value)} ({_number(check.spread[0])}-{_number(check.spread[1])})",
                "" if check.bound is None else f"{check.relation} {_number(check.bound)}",
                {None: "", True: "[green]yes[/green]", False: "[red]no[/red]"}[check.reached],
                end_section=number == len(row.checks) - 1,
            )
    console.print(table)
    for row in rows:
        if row.cores_elsewhere is not None and row.cores_elsewhere > _DISTURBING:
            console.print(
                f"{row.name}: other processes kept {row.cores_elsewhere:.1f} cores busy; its times are rough.",
                highlight=False,
            )


def write_json(rows: Sequence[Row], environment: dict[str, Any], path: Path) -> None:
    """Write the environment's record and every row to a file."""
    record = {"environment": environment, "rows": [row.as_json() for row in rows]}
    path.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


def _number(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
