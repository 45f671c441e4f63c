"""Traces of trainings, and where two trainings diverged: the first line of their traces that differs, or the first entry of
their checkpoints.

A trace is a file with one event a line. What comes later may follow from what comes earlier; that order is what lets a comparison
say where two trainings diverged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from detaug.ledger.comparing import short
from detaug.nnunet.run_record import differences
from detaug.training.auditing import first_differing
from detaug.training.comparing import Event

START, TRAINING, VALIDATION = "start", "training", "validation"
DATA, OUTCOME, WEIGHTS = "data", "outcome", "weights"
INITIAL_WEIGHTS, RESUME, BETWEEN_EPOCHS, BOOKKEEPING = (
    "initial weights",
    "resume",
    "between epochs",
    "bookkeeping",
)


@dataclass(frozen=True)
class Origin:
    """Where a difference between two trainings began.

    Attributes:
        kind: "initial weights", "data", "outcome" (of a step: its loss), "weights" (that it writes, and the optimiser's state),
            "resume" (what a checkpoint was to bring back), "between epochs" (weights changed although no step was taken), or
            "bookkeeping" (of the checkpoint).
        where: what differs first (a batch's key, a part of the outcome, a parameter, a checkpoint's entry), and when.
    """

    kind: str
    where: str


def at_start(epoch: int) -> str:
    """The place of an epoch's start in a trace."""
    return f"at the start of epoch {epoch}"


def in_step(phase: str, step: int, epoch: int) -> str:
    """The place of a step, counted from 0 in each epoch and phase."""
    return f"of {phase} batch {step} of epoch {epoch}"


def first_origin(
    one: Sequence[Event], other: Sequence[Event], resumed: bool = False
) -> Origin | None:
    """Where the first difference between two traces began; None: they are equal. `resumed`: the other training was, in its second
    epoch."""
    found = first_differing(one, other)
    if found is None:
        return None
    place, kind, what, _ = found
    if place == at_start(0):
        kind = INITIAL_WEIGHTS
    elif kind == START:
        kind = RESUME if resumed else BETWEEN_EPOCHS
    elif resumed and place == in_step(TRAINING, 0, 1) and kind != DATA:
        # the same batch and weights, and another outcome: something else that the trainer keeps
        kind = RESUME
    return Origin(kind, f"{what} {place}")


def bookkeeping_origin(one: Path, other: Path) -> Origin:
    """The first entry in which two checkpoints differ whose trainings had equal traces."""
    # NumPy's scalars in them want a full unpickling; they were written a moment ago by our own trainings
    stored = (torch.load(path, map_location="cpu", weights_only=False) for path in (one, other))
    for name, *values in differences(*stored):
        return Origin(BOOKKEEPING, f"{name} of {one.name} ({' and '.join(map(short, values))})")
    return Origin(
        BOOKKEEPING, f"how {one.name} is pickled (all entries that can be compared are equal)"
    )
