"""The trace of a training: fingerprints of everything that its steps read and make, in the order in which they do.

A file with one JSON object a line, each a `Moment`. What comes later in a moment may follow from what comes earlier in it,
and from earlier moments; that order is what lets a comparison say where two trainings diverged.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from detaug.fingerprints import dense, fingerprint

START, TRAINING, VALIDATION = "start", "training", "validation"
DATA, OUTCOME, WEIGHTS = "data", "outcome", "weights"

#: How the digest of a value without a fingerprint begins.
NOT_COMPARED = "not compared"


@dataclass
class Moment:
    """An epoch's start, or one of its steps.

    Attributes:
        epoch, step: counted from 0.
        phase: "start" of an epoch, or "training", or "validation".
        cases: the cases in the batch.
        parts: (kind, name) -> fingerprint, in the order of causes: data, the step's outcome, weights and the optimiser's state.
    """

    epoch: int
    phase: str
    step: int = 0
    cases: list[str] = field(default_factory=list)
    parts: dict[tuple[str, str], str] = field(default_factory=dict)

    def add(self, kind: str, found: Iterable[tuple[str, Any]]) -> None:
        """Fingerprint values, by their names."""
        self.parts.update({(kind, name): digest(value) for name, value in found})

    @property
    def place(self) -> tuple[int, str, int]:
        """What the moments of two trainings are matched by."""
        return self.epoch, self.phase, self.step

    def as_json(self) -> str:
        """One line."""
        return json.dumps({**vars(self), "parts": [[*key, value] for key, value in self.parts.items()]})

    @classmethod
    def from_json(cls, text: str) -> Moment:
        """What `as_json` gave."""
        stored = json.loads(text)
        parts = {(kind, name): value for kind, name, value in stored.pop("parts")}
        return cls(**stored, parts=parts)


def read(path: Path) -> list[Moment]:
    """All moments of a trace."""
    with path.open() as file:
        return [Moment.from_json(line) for line in file]


def digest(value: Any) -> str:
    """`detaug.fingerprint`; of what has none, a line that says so, equal for all values of one class."""
    try:
        return fingerprint(dense(value) if isinstance(value, torch.Tensor) else value)
    except TypeError:
        return f"{NOT_COMPARED}: {type(value).__module__}.{type(value).__qualname__}"


def leaves(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    """The arrays and other values in a batch or outcome, with names such as ``target[0]``."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from leaves(each, f"{name}[{key!r}]" if name else str(key))
    elif isinstance(value, (list, tuple)) and any(isinstance(each, (torch.Tensor, np.ndarray)) for each in value):
        for i, each in enumerate(value):
            yield from leaves(each, f"{name}[{i}]")
    else:
        yield name, value
