"""What the schedule answers: positions, and what became of the batches that were to be made."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from detaug.errors import BatchError

logger = logging.getLogger("detaug")


class Position(NamedTuple):
    """Where the reader stands.

    Attributes:
        epoch, step: what is due next.
        taken: steps of this rank that were handed out (or skipped) in this epoch, since there are
            as many ranks as now.
        before: batches that all ranks took in this epoch when there were more or fewer ranks.
        skipped: how many steps of this rank were skipped in a row directly before it, those of
            earlier epochs too.
    """

    epoch: int
    step: int
    taken: int
    before: int = 0
    skipped: int = 0


@dataclass(frozen=True)
class Delivered:
    """A finished batch. `mark_delivered` is to be called before the user gets it."""

    batch: Any
    mark_delivered: Callable[[], None] | None = None


@dataclass(frozen=True)
class Failed:
    """Its loader or transform raised, or it killed its workers."""

    error: BaseException


@dataclass(frozen=True)
class Skipped:
    """It failed and was left out, as on_error=Skip() wants."""

    error: BaseException | None = None  # is raised where too many in a row were left out
    text: str = ""  # the error's message in full
    batch: str = ""  # for messages


@dataclass(frozen=True)
class EpochEnd:
    """Nothing of this epoch is left; the next one begins at `then`."""

    then: Position


Outcome = Delivered | Failed | Skipped


class TakeResult(NamedTuple):
    """What `Schedule.take` took, where it stood, and the steps before it that were skipped. No
    outcome: it is not known yet, and nothing was taken.
    """

    position: Position
    outcome: Outcome | EpochEnd | None
    passed: list[Skipped]


def skipped_outcome(error: BatchError, max_skips: int | None) -> Skipped:
    """The outcome of a batch that failed. The error is prepared for being raised as the one that is
    too many.
    """
    text = str(error)
    first_line, rest = text.partition("\n")[::2]
    too_many = (
        f"This is one batch too many that failed: Skip(most={max_skips}) leaves out at "
        "most "
        f"{max_skips} in a row."
    )
    error.args = (f"{first_line}\n{too_many}\n{rest}",)
    return Skipped(error, text, f"epoch {error.epoch}, step {error.step}")


class SkipLog:
    """Logs batches that were left out, in their order: each error (class and message) in full once,
    then in a line.
    """

    def __init__(self) -> None:
        self._times: Counter[str] = Counter()

    def say(self, skipped: Skipped) -> None:
        """Tell of one."""
        summary = skipped.text.partition("\n")[0]
        self._times[summary] += 1
        times = self._times[summary]
        if times == 1:
            logger.warning("skipped: %s", skipped.text)
        else:
            logger.warning(
                "skipped: %s as well, for %s (%d times by now)", skipped.batch, summary, times
            )
