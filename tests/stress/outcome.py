"""What a row of the stress suite found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass
class Outcome:
    """One row.

    Attributes:
        name: what was done.
        faults: how many were injected.
        batches: how many were compared with an undisturbed run.
        differences: how many of them were not the same.
        notes: what else was measured.
        failures: what should not be.
    """

    name: str
    faults: int = 0
    batches: int = 0
    differences: int = 0
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

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.faults} faults, {self.batches} batches, {self.differences} differences. "
            f"{'; '.join([*self.notes, *self.failures])}"
        )
