"""Traces of trainings, and where two trainings diverged: the first line of their traces that differs, or the first entry of
their checkpoints.

A trace is a file with one JSON object a line, each a `Moment`. What comes later in a moment may follow from what comes earlier in
it, and from earlier moments; that order is what lets a comparison say where two trainings diverged.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from detaug.fingerprints import dense, fingerprint

START, TRAINING, VALIDATION = "start", "training", "validation"
DATA, OUTCOME, WEIGHTS = "data", "outcome", "weights"
INITIAL_WEIGHTS, RESUME, BETWEEN_EPOCHS, BOOKKEEPING = "initial weights", "resume", "between epochs", "bookkeeping"

_NOT_COMPARED = "not compared"


@dataclass
class Moment:
    """An epoch's start, or one of its steps, counted from 0.

    Attributes:
        phase: "start" of an epoch, or "training", or "validation".
        samples: how many the batch has.
        parts: (kind, name) -> fingerprint, in the order of causes: data, the step's outcome, weights and the optimiser's state.
    """

    epoch: int
    phase: str
    step: int = 0
    samples: int = 0
    parts: dict[tuple[str, str], str] = field(default_factory=dict)

    def add(self, kind: str, found: Iterable[tuple[str, Any]]) -> None:
        """Fingerprint values, by their names."""
        self.parts.update({(kind, name): _digest(value) for name, value in found})

    @property
    def place(self) -> tuple[int, str, int]:
        """What the moments of two trainings are matched by."""
        return self.epoch, self.phase, self.step

    def as_json(self) -> str:
        """One line."""
        return json.dumps({**vars(self), "parts": [[*key, value] for key, value in self.parts.items()]})


def read(path: Path) -> list[Moment]:
    """All moments of a trace."""
    stored = map(json.loads, path.read_text().splitlines())
    return [
        Moment(**{**each, "parts": {(kind, name): value for kind, name, value in each["parts"]}}) for each in stored
    ]


def _digest(value: Any) -> str:
    """`detaug.fingerprint`; of what has none, a line that says so, equal for all values of one class."""
    try:
        return fingerprint(dense(value) if isinstance(value, torch.Tensor) else value)
    except TypeError:
        return f"{_NOT_COMPARED}: {type(value).__module__}.{type(value).__qualname__}"


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
        place = "" if self.epoch is None else f" of epoch {self.epoch}"
        if self.epoch is not None:
            place = (" at the start" if self.step is None else f" of {self.phase} batch {self.step}") + place
        return f"{self.name}{place}" + (f" ({self.detail})" if self.detail else "")


def first_origin(one: Sequence[Moment], other: Sequence[Moment], resumed_at: int | None = None) -> Origin | None:
    """Where the first difference between two traces began; None: they are equal. The other training was resumed at the start
    of the epoch `resumed_at`; the last of its lines on one place counts."""
    theirs = {moment.place: moment.parts for moment in other}
    for moment in one:
        counterpart = theirs.get(moment.place, {})
        for kind, name in dict.fromkeys([*moment.parts, *counterpart]):
            if moment.parts.get((kind, name)) == counterpart.get((kind, name)):
                continue
            if moment.phase == START:
                at = RESUME if moment.epoch == resumed_at else INITIAL_WEIGHTS if moment.epoch == 0 else BETWEEN_EPOCHS
                return Origin(at, name, moment.epoch)
            # the same batch and weights, and another outcome: something else that the trainer keeps
            resume = kind != DATA and moment.place == (resumed_at, TRAINING, 0)
            return Origin(RESUME if resume else kind, name, moment.epoch, moment.phase, moment.step)
    return None


def bookkeeping_origin(one: Path, other: Path) -> Origin:
    """The first entry in which two checkpoints differ whose trainings had equal traces."""
    # NumPy's scalars in them want a full unpickling; they were written a moment ago by our own trainings
    loaded = [torch.load(path, map_location="cpu", weights_only=False) for path in (one, other)]
    place = first_difference(loaded[0], loaded[1])
    if place is None:
        return Origin(BOOKKEEPING, "how the checkpoint is pickled", detail="all of its entries are equal")
    return Origin(BOOKKEEPING, f"checkpoint_final.pth{place[0]}", detail=place[1])


def first_difference(one: Any, other: Any, name: str = "") -> tuple[str, str] | None:
    """Where two nested values differ first: a place such as ``['logging']['train_losses'][0]``, and both in a few words."""
    if type(one) is not type(other) or not isinstance(one, (dict, list, tuple)):
        found = _digest(one)
        equal = found == _digest(other)
        if equal and found.startswith(_NOT_COMPARED):
            equal = pickle.dumps(one) == pickle.dumps(other)
        return None if equal else (name, f"{_brief(one)} and {_brief(other)}")
    mine, theirs = (each if isinstance(each, dict) else dict(enumerate(each)) for each in (one, other))
    for key in dict.fromkeys([*mine, *theirs]):
        if key not in mine or key not in theirs:
            return f"{name}[{key!r}]", "only one of the checkpoints has it"
        inner = first_difference(mine[key], theirs[key], f"{name}[{key!r}]")
        if inner:
            return inner
    return None if list(mine) == list(theirs) else (name, "its keys are in another order")


def _brief(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else text[:57] + "..."
