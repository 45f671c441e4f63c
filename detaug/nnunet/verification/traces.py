"""Traces of trainings, and where two trainings diverged: the first line of their traces that differs, or the first entry of
their checkpoints.

A trace is a file with one JSON object a line, each a `Moment`. What comes later in a moment may follow from what comes earlier in
it, and from earlier moments; that order is what lets a comparison say where two trainings diverged.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from detaug.nnunet.run_record import differences, print_of, shown

START, TRAINING, VALIDATION = "start", "training", "validation"
DATA, OUTCOME, WEIGHTS = "data", "outcome", "weights"
INITIAL_WEIGHTS, RESUME, BETWEEN_EPOCHS, BOOKKEEPING = "initial weights", "resume", "between epochs", "bookkeeping"


@dataclass
class Moment:
    """An epoch's start, or one of its steps, counted from 0.

    Attributes:
        phase: "start" of an epoch, or "training", or "validation".
        parts: "kind: name" -> fingerprint, in the order of causes: data, the step's outcome, weights and the optimiser's state.
    """

    epoch: int
    phase: str
    step: int = 0
    parts: dict[str, str] = field(default_factory=dict)

    def add(self, kind: str, found: Iterable[tuple[str, Any]]) -> None:
        """Fingerprint values, by their names."""
        self.parts.update({f"{kind}: {name}": print_of(value) for name, value in found})

    @property
    def place(self) -> tuple[int, str, int]:
        """What the moments of two trainings are matched by."""
        return self.epoch, self.phase, self.step

    def as_json(self) -> str:
        """One line."""
        return json.dumps(vars(self))


def read(path: Path) -> list[Moment]:
    """All moments of a trace."""
    return [Moment(**json.loads(line)) for line in path.read_text().splitlines()]


@dataclass(frozen=True)
class Origin:
    """Where a difference between two trainings began.

    Attributes:
        kind: "initial weights", "data", "outcome" (of a step: its loss), "weights" (that it writes, and the optimiser's state),
            "resume" (what a checkpoint was to bring back), "between epochs" (weights changed although no step was taken), or
            "bookkeeping" (of the checkpoint).
        name: what differs first: a batch's key, a part of the outcome, a parameter, a checkpoint's entry.
        epoch, phase, step: where; phase is "" and step None at an epoch's start.
        detail: of the checkpoint's entry, both values.
    """

    kind: str
    name: str
    epoch: int | None = None
    phase: str = ""
    step: int | None = None
    detail: str = ""

    @property
    def where(self) -> str:
        """What differs first, and when."""
        if self.epoch is None:
            return f"{self.name} ({self.detail})"
        when = "at the start" if self.step is None else f"of {self.phase} batch {self.step}"
        return f"{self.name} {when} of epoch {self.epoch}"


def first_origin(one: Sequence[Moment], other: Sequence[Moment], resumed: bool = False) -> Origin | None:
    """Where the first difference between two traces began; None: they are equal. Where the other training was `resumed`, in
    its second epoch, the last of its lines on one place counts."""
    theirs = {moment.place: moment.parts for moment in other}
    for moment in one:
        counterpart = theirs.get(moment.place, {})
        for part in dict.fromkeys([*moment.parts, *counterpart]):
            if moment.parts.get(part) == counterpart.get(part):
                continue
            kind, _, name = part.partition(": ")
            if moment.phase == START:
                later = RESUME if resumed else BETWEEN_EPOCHS
                at = later if moment.epoch else INITIAL_WEIGHTS
                return Origin(at, name, moment.epoch)
            # the same batch and weights, and another outcome: something else that the trainer keeps
            resume = resumed and kind != DATA and moment.place == (1, TRAINING, 0)
            return Origin(RESUME if resume else kind, name, moment.epoch, moment.phase, moment.step)
    return None


def bookkeeping_origin(one: Path, other: Path) -> Origin:
    """The first entry in which two checkpoints differ whose trainings had equal traces."""
    # NumPy's scalars in them want a full unpickling; they were written a moment ago by our own trainings
    stored = (torch.load(path, map_location="cpu", weights_only=False) for path in (one, other))
    for name, *values in differences(*stored):
        return Origin(BOOKKEEPING, f"{name} of {one.name}", detail=" and ".join(map(shown, values)))
    return Origin(BOOKKEEPING, f"how {one.name} is pickled", detail="all entries that can be compared are equal")
