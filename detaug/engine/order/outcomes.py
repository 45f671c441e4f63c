"""What the schedule is asked for, and what it answers: positions, tasks, and what became of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from detaug.pipeline.plan import BatchKey


class Position(NamedTuple):
    """Where the reader stands.

    Attributes:
        epoch, step: what is due next.
        taken: steps of this rank that were handed out (or skipped) in this epoch, since there are as many ranks as now.
        before: batches that all ranks took in this epoch when there were more or fewer ranks.
    """

    epoch: int
    step: int
    taken: int
    before: int = 0


class Task(NamedTuple):
    """A batch to be made. A probe only asks whether it exists."""

    key: BatchKey
    probe: bool


@dataclass(frozen=True)
class Delivered:
    """A finished batch.

    Attributes:
        hand_over: to be called before the user gets it.
    """

    batch: Any
    hand_over: Callable[[], None] | None = None


@dataclass(frozen=True)
class Failed:
    """Its loader or transform raised, or it killed its workers."""

    error: BaseException


@dataclass(frozen=True)
class Skipped:
    """It failed and was left out, as on_error=Skip() wants.

    Attributes:
        error: is raised where too many in a row were left out.
        text: the error's message in full.
        batch: which batch, for messages.
    """

    error: BaseException | None = None
    text: str = ""
    batch: str = ""


@dataclass(frozen=True)
class Exists:
    """A probe found that there is such a batch."""


@dataclass(frozen=True)
class EpochEnd:
    """Nothing of this epoch is left; the next one begins at `then`."""

    then: Position


Outcome = Delivered | Failed | Skipped | Exists


class Taken(NamedTuple):
    """What `Schedule.take` took.

    Attributes:
        position: where it stood.
        outcome: None: it is not known yet, and nothing was taken.
        passed: the steps before it that were skipped.
    """

    position: Position
    outcome: Outcome | EpochEnd | None
    passed: list[Skipped]
