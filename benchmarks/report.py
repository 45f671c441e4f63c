"""What a benchmark's row holds, and how rows are shown: as a table and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from rich.console import Console
from rich.markdown import Markdown

from benchmarks.markdown import markdown_table
from detaug.tools.bench.timing import Ratio

OURS = "detaug"

Unit = Literal["batches/s", "ms", "s"]

#: Other programs that keep more cores busy than this make a row's times rough.
DISTURBING = 0.1

LEGEND = "ratio: how many times as fast detaug is."


@dataclass(frozen=True)
class Comparison:
    """detaug against one other system.

    Attributes:
        against: its name.
        theirs: its median, in the row's unit.
        ratio: how many times as much the other one costs.
    """

    against: str
    theirs: float
    ratio: Ratio


@dataclass
class Row:
    """One measurement of detaug and of what it is compared with.

    Attributes:
        name: what was measured.
        unit: of `ours`, and of the comparisons' `theirs`.
        ours: detaug's median.
        comparisons: one for each other system.
        rounds: how many rounds are behind each median.
        cores_elsewhere: how many cores other programs kept busy meanwhile.
    """

    name: str
    unit: Unit
    ours: float
    comparisons: list[Comparison]
    rounds: int
    cores_elsewhere: float = 0.0


def row_of(name: str, unit: Unit, costs: Mapping[str, Sequence[float]]) -> Row:
    """Return the row of these costs.

    Args:
        name: what was measured.
        unit: what the medians are shown in.
        costs: system → its cost in every round, in seconds (per batch).
    """
    # A ratio is taken within each round, so that a slow minute of the machine weighs on both.
    ours = costs[OURS]
    comparisons = [
        Comparison(system, in_unit(median(theirs), unit), Ratio.of(theirs, ours))
        for system, theirs in costs.items()
        if system != OURS
    ]
    return Row(name, unit, in_unit(median(ours), unit), comparisons, len(ours))


def in_unit(cost: float, unit: Unit) -> float:
    """Return a cost in seconds (per batch) in the unit it is shown in."""
    if unit == "batches/s":
        return 1 / cost
    if unit == "ms":
        return 1e3 * cost
    return cost


def show(rows: Sequence[Row], console: Console, title: str, quick: bool) -> None:
    """Print a line for each row and each of its comparisons, and what a ratio means."""
    lines = []
    for row in rows:
        lines.append([f"**{row.name} [{row.unit}]**, {row.rounds} rounds", _number(row.ours), ""])
        for comparison in row.comparisons:
            ratio = comparison.ratio
            spread = f"{_number(ratio.lowest)}-{_number(ratio.highest)}"
            cells = [_number(comparison.theirs), f"{_number(ratio.median)} ({spread})"]
            lines.append([comparison.against, *cells])
    headings = ("what, and against whom", "median", "ratio (range)")
    notes = [f"- {LEGEND}"]
    if quick:
        notes.append("- These rounds were short: they show that it runs, not how fast.")
    for row in rows:
        if row.cores_elsewhere > DISTURBING:
            cores = f"{row.cores_elsewhere:.1f} cores"
            notes.append(f"- {row.name}: other programs kept {cores} busy; its times are rough.")
    text = "\n".join([title, "", markdown_table(headings, lines), *notes])
    console.print(Markdown(text))


def _number(value: float) -> str:
    if abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.3g}"
