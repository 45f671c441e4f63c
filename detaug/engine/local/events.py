"""What happens to the processes, as the pool tells the coordinator."""

from __future__ import annotations

from typing import NamedTuple

from detaug.engine.local import messages
from detaug.engine.local.handles import Worker


class Woken(NamedTuple):
    """A thread of the user's has changed something."""


class Ready(NamedTuple):
    """The worker can be given tasks."""

    worker: Worker


class Missing(NamedTuple):
    """The place of this worker is empty, and will stay so for a while."""

    worker: Worker


class Answered(NamedTuple):
    """The answer to one of its tasks has come, with a descriptor if it lies in a new slot."""

    worker: Worker
    answer: messages.Answer
    descriptor: int | None


class Died(NamedTuple):
    """It ended while it made a batch, or between two. All its answers were told of before; another worker starts.

    Attributes:
        peak: the most memory it had, in bytes; 0: not known.
    """

    worker: Worker
    exitcode: int
    peak: int


class Gone(NamedTuple):
    """It is gone through no fault of its tasks: it has too much memory, or went with the helper.

    Attributes:
        private: the bytes of memory for which it retired; 0: it did not.
    """

    worker: Worker
    private: int = 0


class Reported(NamedTuple):
    """What the run-time check needs to know has come."""

    worker: Worker
    message: messages.Report | messages.Checked | messages.Explained


class CheckerReady(NamedTuple):
    """The process that makes batches again can be told what to make."""


class CheckerTook(NamedTuple):
    """A process that was forked for a check has ended, and has cost so much processor time in all."""

    seconds: float


class CheckerLost(NamedTuple):
    """It is gone, and what it was to make is not made."""


class Said(NamedTuple):
    """Something that the user is to know once."""

    text: str


class Failed(NamedTuple):
    """There can be no more batches."""

    error: BaseException


Event = (
    Woken
    | Ready
    | Missing
    | Answered
    | Died
    | Gone
    | Reported
    | CheckerReady
    | CheckerTook
    | CheckerLost
    | Said
    | Failed
)
