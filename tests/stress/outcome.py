"""What a row of the stress suite found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.table import Table


@dataclass
class Outcome:
    """One row.

    Attributes:
        name: what was done.
        faults: how many were injected.
        batches: how many were compared with an undisturbed run.
        differences: how many of them were not the same.
        seconds: how long it took.
        notes: what else was measured.
        failures: what should not be.
    """

    name: str
    faults: int = 0
    batches: int = 0
    differences: int = 0
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Whether all was as it must be."""
        return self.differences == 0 and not self.failures

    def compare(self, found: Sequence[str], expected: Sequence[str]) -> None:
        """Count the batches of one run, and those that differ."""
        self.batches += len(found)
        self.differences += sum(a != b for a, b in zip(found, expected, strict=True))


def table_of(outcomes: Sequence[Outcome]) -> Table:
    """All rows for people."""
    table = Table(title="detaug under stress")
    for heading in ("what", "faults", "batches compared", "differences", "seconds", "notes", ""):
        table.add_column(heading, justify="left" if heading in ("what", "notes") else "right")
    for row in outcomes:
        notes = "; ".join([*row.notes, *row.failures])
        verdict = "[green]as it must be[/]" if row.passed else "[red]failed[/]"
        table.add_row(
            row.name, str(row.faults), str(row.batches), str(row.differences), f"{row.seconds:.0f}", notes, verdict
        )
    totals = (str(sum(getattr(row, name) for row in outcomes)) for name in ("faults", "batches", "differences"))
    table.add_section()
    table.add_row("in all", *totals, f"{sum(row.seconds for row in outcomes):.0f}", "", "")
    return table
