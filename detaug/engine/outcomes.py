"""Positions in a rank's order, and the outcomes of its tasks."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from detaug.errors import BatchError

logger = logging.getLogger("detaug")


class Position(NamedTuple):
    """The reader's cursor in the order of this rank's batches.

    Attributes:
        epoch: the epoch that is due.
        step: the step that is due, of this rank.
        num_taken: number of steps of this rank that were handed out or skipped in this epoch since
            the number of ranks last changed.
        num_before_resize: number of batches that all ranks took in this epoch before the number of
            ranks last changed.
        num_skipped: number of steps of this rank that were skipped in a row directly before this
            one, also in earlier epochs.
    """

    epoch: int
    step: int
    num_taken: int
    num_before_resize: int = 0
    num_skipped: int = 0


@dataclass(frozen=True)
class Delivered:
    """A finished batch.

    Attributes:
        batch: the batch.
        mark_delivered: called before the user gets the batch; None: there is nothing to call.
    """

    batch: Any
    mark_delivered: Callable[[], None] | None = None


@dataclass(frozen=True)
class Failed:
    """A batch whose loader or transform raised, or that ended too many workers."""

    error: BaseException


@dataclass(frozen=True)
class Skipped:
    """A failed batch that is left out because of ``on_error=Skip()``.

    Attributes:
        error: raised if too many batches in a row were left out.
        text: the error's whole message.
        batch: the batch's epoch and step, for messages.
    """

    error: BaseException
    text: str
    batch: str


@dataclass(frozen=True)
class EpochEnd:
    """The end of an epoch; the next epoch begins at `next_position`."""

    next_position: Position


Outcome = Delivered | Failed | Skipped


class TakeResult(NamedTuple):
    """The result of `Schedule.take`.

    Attributes:
        position: the position of the outcome.
        outcome: the outcome that was taken; None: it is not known yet, and nothing was taken.
        skipped: the steps before it that were skipped.
    """

    position: Position
    outcome: Outcome | EpochEnd | None
    skipped: list[Skipped]


def skipped_outcome(error: BatchError, max_skips: int | None) -> Skipped:
    """Return the outcome of a failed batch that is left out.

    The error's message is changed to the one it has if it is raised: that too many were left out.

    Args:
        error: the error of the batch.
        max_skips: number of batches in a row that may be left out; None: any number.
    """
    # The message is completed now: `Schedule.due`, which finds that one too many was left out, only
    # has the outcome.
    text = str(error)
    first_line, _, rest = text.partition("\n")
    too_many = (
        f"This is one batch too many that failed: Skip(most={max_skips}) leaves out at most"
        f" {max_skips} in a row."
    )
    error.args = (f"{first_line}\n{too_many}\n{rest}",)
    return Skipped(error, text, f"epoch {error.epoch}, step {error.step}")


class SkipLog:
    """A log of skipped batches: each error (class and message) once in full, then in one line."""

    def __init__(self) -> None:
        self._times: Counter[str] = Counter()

    def warn(self, skipped: Skipped) -> None:
        """Log one skipped batch."""
        # The first line has the error's class and message, but not the batch: it is equal for all
        # batches with that error.
        summary = skipped.text.partition("\n")[0]
        self._times[summary] += 1
        times = self._times[summary]
        if times == 1:
            logger.warning("skipped: %s", skipped.text)
            return
        logger.warning("skipped: %s too, with %s (%d times so far)", skipped.batch, summary, times)
