"""Where two trainings diverged: pure functions of their traces, and of their checkpoints where the traces are equal."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from detaug.nnunet.verification.trace import (
    BACKWARD,
    DATA,
    FORCED,
    FORWARD,
    NOT_COMPARED,
    OPTIMIZER,
    START,
    TRAINING,
    VALIDATION,
    WEIGHTS,
    Moment,
    digest,
)

INITIAL_WEIGHTS, RESUME, BETWEEN_EPOCHS, BOOKKEEPING = "initial weights", "resume", "between epochs", "bookkeeping"


@dataclass(frozen=True)
class Origin:
    """Where a difference began.

    Attributes:
        kind: "initial weights", "data", "forward", "backward", "optimizer" (also the weights that it writes), "resume"
            (what a checkpoint was to bring back), "between epochs" (weights changed although no step was taken), or
            "bookkeeping" (of the checkpoint).
        name: what differs first: a batch's key, an output, a parameter, a checkpoint's entry.
        epoch, step: where, counted from 0; step is None at an epoch's start.
        phase: "training" or "validation"; "" at an epoch's start.
        detail: what else is known, in a sentence without its stop.
    """

    kind: str
    name: str
    epoch: int | None = None
    phase: str = ""
    step: int | None = None
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.kind}: {self.where}"

    @property
    def where(self) -> str:
        """What differs first, and when."""
        place = "" if self.epoch is None or self.kind == INITIAL_WEIGHTS else f" of epoch {self.epoch}"
        if self.phase == FORCED:
            place = " of a batch made for it"
        elif self.step is not None:
            place = f" {'of' if self.kind == DATA else 'at'} {self.phase} batch {self.step}{place}"
        elif place:
            place = f" at the start{place}"
        name = repr(self.name) if self.kind == DATA else self.name
        return f"{name}{place}" + (f"; {self.detail}" if self.detail else "")


def origins(
    one: Sequence[Moment], other: Sequence[Moment], resumed_at: int | None = None, repeated: bool = False
) -> tuple[Origin, ...]:
    """All differences that do not follow from one another: each would remain if the rest were repaired.

    Batches never follow from weights, nor weights from validation batches. Of what follows from weights, only the first
    difference is reported: the later ones follow from it.

    Args:
        one, other: the traces.
        resumed_at: the epoch at whose start the other training was resumed.
        repeated: the training was repeated without a resume, and had the same trace: then what differs from the first step
            after a resume on is missing from the checkpoint, and no operation is nondeterministic.

    Returns:
        In the order of their occurrence; empty where the traces are equal.
    """
    seen: dict[tuple[str, str], Origin] = {}
    counterparts = {moment.place: moment for moment in other}
    weights_differ = False
    for moment in one:
        counterpart = counterparts.get(moment.place, Moment(*moment.place))
        batch_differs = False
        for key in _differing(moment, counterpart):
            kind = key[0]
            training = moment.phase != VALIDATION
            if kind == DATA:
                batch_differs = True
                if moment.phase == FORCED and (DATA, TRAINING) in seen:
                    continue  # as ordinary batches do
                seen.setdefault((DATA, moment.phase), _origin(moment, counterpart, DATA, key))
            elif not weights_differ and not batch_differs:
                known = _known_kind(moment, kind, resumed_at, repeated)
                seen.setdefault((known, "" if training else VALIDATION), _origin(moment, counterpart, known, key))
                if not training:
                    break
            if training:
                weights_differ = True
    return tuple(seen.values())


def _differing(moment: Moment, counterpart: Moment) -> Iterator[tuple[str, str]]:
    parts = counterpart.parts
    for key, value in moment.parts.items():
        if parts.get(key) != value:
            yield key
    yield from (key for key in parts if key not in moment.parts)


def _known_kind(moment: Moment, kind: str, resumed_at: int | None, repeated: bool) -> str:
    if repeated and moment.epoch == resumed_at and moment.phase == TRAINING and moment.step == 0:
        return RESUME
    if moment.phase == START:
        if moment.epoch == resumed_at:
            return RESUME
        return INITIAL_WEIGHTS if moment.epoch == 0 else BETWEEN_EPOCHS
    return OPTIMIZER if kind == WEIGHTS else kind


def _origin(moment: Moment, counterpart: Moment, kind: str, key: tuple[str, str]) -> Origin:
    details = []
    if key not in counterpart.parts:
        details.append("this training has none")
    elif key not in moment.parts:
        details.append("the first training has none")
    if kind == DATA and moment.cases != counterpart.cases:
        details.append(
            f"other cases were drawn: {_listed(counterpart.cases)} here, {_listed(moment.cases)} in the first training"
        )
    elif kind == DATA and moment.cases:
        details.append(f"the cases are the same: {_listed(moment.cases)}")
    if kind in (FORWARD, BACKWARD):
        details.append("batch and weights were equal" if kind == FORWARD else "batch, weights and outputs were equal")
    if kind == RESUME and moment.phase == TRAINING:
        details.append(
            "batch and weights were equal, and without a resume so is this: something else that the trainer keeps (a teacher, "
            "averages, a counter) is not in the checkpoint"
        )
    if kind == OPTIMIZER:
        details.append("the gradients were equal, before they were clipped")
    start = moment.phase == START
    phase, step = ("", None) if start else (moment.phase, moment.step)
    return Origin(kind, key[1], moment.epoch, phase, step, "; ".join(details))


def _listed(cases: Sequence[str]) -> str:
    return f"[{', '.join(cases)}]"


def sha256(path: Path) -> str:
    """Of a file's bytes, in hexadecimal."""
    found = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            found.update(block)
    return found.hexdigest()


def bookkeeping_origin(one: Path, other: Path) -> Origin:
    """The first entry in which two checkpoints differ whose trainings had equal traces."""
    import torch

    # NumPy's scalars in them want a full unpickling; they were written a moment ago by our own trainings
    loaded = [torch.load(path, map_location="cpu", weights_only=False) for path in (one, other)]
    place = first_difference(loaded[0], loaded[1])
    if place is None:
        return Origin(
            BOOKKEEPING,
            "how the checkpoint is pickled",
            detail="all of its entries are equal; torch.save writes equal values in several ways "
            "(DeterministicTraining.save_checkpoint does not)",
        )
    name, values = place
    return Origin(BOOKKEEPING, f"checkpoint_final.pth{name}", detail=values)


def first_difference(one: Any, other: Any, name: str = "") -> tuple[str, str] | None:
    """Where two nested values differ first.

    Returns:
        (place such as ``['logging']['train_losses'][0]``, both values in a few words); None: they are equal.
    """
    if type(one) is type(other) and isinstance(one, dict):
        for key in [*one, *(key for key in other if key not in one)]:
            if key not in one or key not in other:
                return f"{name}[{key!r}]", "only one of the checkpoints has it"
            found = first_difference(one[key], other[key], f"{name}[{key!r}]")
            if found:
                return found
        if list(one) != list(other):
            return name, f"its keys are in another order: {_brief(list(one))} and {_brief(list(other))}"
        return None
    if type(one) is type(other) and isinstance(one, (list, tuple)):
        for i, (mine, theirs) in enumerate(zip(one, other, strict=False)):
            found = first_difference(mine, theirs, f"{name}[{i}]")
            if found:
                return found
        return None if len(one) == len(other) else (name, f"{len(one)} and {len(other)} entries")
    if digest(one) != digest(other) or (digest(one).startswith(NOT_COMPARED) and not _pickled_alike(one, other)):
        return name, f"{_brief(one)} and {_brief(other)}"
    return None


def _pickled_alike(one: Any, other: Any) -> bool:
    """Of objects without a fingerprint, which came out of a pickle."""
    return pickle.dumps(one) == pickle.dumps(other)


def _brief(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else text[:57] + "..."
