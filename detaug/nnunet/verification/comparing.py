"""Where two trainings diverged: the first line of their traces that differs, and the first entry of their checkpoints."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from detaug.nnunet.verification.trace import DATA, NOT_COMPARED, OUTCOME, START, TRAINING, WEIGHTS, Moment, digest

INITIAL_WEIGHTS, RESUME, BETWEEN_EPOCHS, BOOKKEEPING = "initial weights", "resume", "between epochs", "bookkeeping"


@dataclass(frozen=True)
class Origin:
    """Where a difference began.

    Attributes:
        kind: "initial weights", "data", "outcome" (of a step: its loss), "weights" (that it writes, and the optimiser's state),
            "resume" (what a checkpoint was to bring back), "between epochs" (weights changed although no step was taken), or
            "bookkeeping" (of the checkpoint).
        name: what differs first: a batch's key, a part of the outcome, a parameter, a checkpoint's entry.
        epoch, step: where, counted from 0; step is None at an epoch's start.
        phase: "training" or "validation"; "" at an epoch's start.
        detail: what else is known.
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
        place = "" if self.epoch is None or self.kind == INITIAL_WEIGHTS else f" of epoch {self.epoch}"
        if self.step is not None:
            place = f" {'of' if self.kind == DATA else 'at'} {self.phase} batch {self.step}{place}"
        elif place:
            place = f" at the start{place}"
        name = repr(self.name) if self.kind == DATA else self.name
        return f"{name}{place}" + (f"; {self.detail}" if self.detail else "")


def first_origin(one: Sequence[Moment], other: Sequence[Moment], resumed_at: int | None = None) -> Origin | None:
    """Where the first difference between two traces began; None: they are equal.

    Args:
        one, other: the traces. What follows in one may follow from what stands before it.
        resumed_at: the epoch at whose start the other training was resumed. The last of its lines on one place counts.
    """
    theirs = {moment.place: moment for moment in other}
    for moment in one:
        counterpart = theirs.get(moment.place, Moment(*moment.place))
        for key in dict.fromkeys([*moment.parts, *counterpart.parts]):
            if moment.parts.get(key) != counterpart.parts.get(key):
                return _origin(moment, counterpart, key, resumed_at)
    return None


def _origin(moment: Moment, other: Moment, key: tuple[str, str], resumed_at: int | None) -> Origin:
    kind, name = key
    if moment.phase == START:
        kind = RESUME if moment.epoch == resumed_at else INITIAL_WEIGHTS if moment.epoch == 0 else BETWEEN_EPOCHS
        return Origin(kind, name, moment.epoch)
    detail = _EQUAL_SO_FAR.get(kind, "")
    if kind == DATA and moment.cases:
        same = "the same cases" if moment.cases == other.cases else f"other cases: {other.cases} and {moment.cases}"
        detail = f"{same} were drawn"
    elif kind != DATA and (moment.epoch, moment.phase, moment.step) == (resumed_at, TRAINING, 0):
        kind = RESUME
        detail = (
            "batch and weights were equal: something else that the trainer keeps (a teacher, averages, a counter) is not in the "
            "checkpoint, or an operation is nondeterministic"
        )
    return Origin(kind, name, moment.epoch, moment.phase, moment.step, detail)


_EQUAL_SO_FAR = {OUTCOME: "batch and weights were equal", WEIGHTS: "batch, weights and outcome were equal"}


def bookkeeping_origin(one: Path, other: Path) -> Origin:
    """The first entry in which two checkpoints differ whose trainings had equal traces."""
    import torch

    # NumPy's scalars in them want a full unpickling; they were written a moment ago by our own trainings
    loaded = [torch.load(path, map_location="cpu", weights_only=False) for path in (one, other)]
    place = first_difference(loaded[0], loaded[1])
    if place is None:
        return Origin(BOOKKEEPING, "how the checkpoint is pickled", detail="all of its entries are equal")
    return Origin(BOOKKEEPING, f"checkpoint_final.pth{place[0]}", detail=place[1])


def first_difference(one: Any, other: Any, name: str = "") -> tuple[str, str] | None:
    """Where two nested values differ first.

    Returns:
        (place such as ``['logging']['train_losses'][0]``, both values in a few words); None: they are equal.
    """
    nested = type(one) is type(other) and isinstance(one, (dict, list, tuple))
    if not nested:
        equal = digest(one) == digest(other)
        if equal and digest(one).startswith(NOT_COMPARED):
            equal = pickle.dumps(one) == pickle.dumps(other)
        return None if equal else (name, f"{_brief(one)} and {_brief(other)}")
    mine, theirs = (each if isinstance(each, dict) else dict(enumerate(each)) for each in (one, other))
    for key in dict.fromkeys([*mine, *theirs]):
        if key not in mine or key not in theirs:
            return f"{name}[{key!r}]", "only one of the checkpoints has it"
        found = first_difference(mine[key], theirs[key], f"{name}[{key!r}]")
        if found:
            return found
    return None if list(mine) == list(theirs) else (name, "its keys are in another order")


def _brief(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else text[:57] + "..."
