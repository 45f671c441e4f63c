"""What a benchmark row holds, and how rows are shown: one table for people, one JSON file for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any, Literal

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from detaug.bench.measuring import Ratio

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
        ratio_check(
            name, 1 / median(theirs), Ratio.of(theirs, seconds[ours]), ">=", bounds.get(name)
        )
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


LEGEND = """\
ratio: where the target is ">=", detaug's speed over the other's (ratio > 1: detaug is faster);
where it is "<=", detaug's time or memory over the other's (ratio < 1: detaug needs less)."""


def show(rows: Sequence[Row], console: Console, title: str, judged: bool = True) -> None:
    """Print the table: for each row, one line for each comparison; and what a ratio means.

    Args:
        rows: what was measured.
        console: where to.
        title: above the table.
        judged: whether targets are compared with what was measured; short rounds say nothing about them.
    """
    table = Table(title=title, box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("what, and against whom", overflow="fold")
    table.add_column("median", no_wrap=True, justify="right")
    table.add_column("ratio (range)", no_wrap=True, justify="right")
    table.add_column("target", no_wrap=True)
    for row in rows:
        table.add_row(
            f"[bold]{escape(f'{row.name} [{row.unit}]')}[/], {row.repeats} rounds",
            _number(row.ours),
        )
        for check in row.checks:
            target = "" if check.bound is None else f"{check.relation} {_number(check.bound)}"
            verdict = (
                {None: "", True: " [green]yes[/]", False: " [red]no[/]"}[check.reached]
                if judged
                else ""
            )
            table.add_row(
                Padding(escape(check.against), (0, 0, 0, 2)),
                "" if check.theirs is None else _number(check.theirs),
                f"{_number(check.value)} ({_number(check.spread[0])}-{_number(check.spread[1])})",
                target + verdict,
            )
        table.add_section()
    console.print(table)
    console.print(LEGEND, highlight=False)
    if not judged:
        console.print(
            "These rounds were short: they show that it runs, not how fast. Targets are not judged."
        )
    for row in rows:
        if row.cores_elsewhere is not None and row.cores_elsewhere > _DISTURBING:
            console.print(
                f"{row.name}: other processes kept {row.cores_elsewhere:.1f} cores busy; its times are rough.",
                highlight=False,
            )


def _number(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
