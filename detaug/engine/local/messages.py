"""Messages between the parent, its helper and the workers.

| from, to | messages |
|---|---|
| parent → helper | Start, Kill, Quit |
| helper → parent | Exited, CannotStart |
| parent → worker | Make; RecheckRequest, TraceRequest (`detaug.engine.recheck.requests`) |
| worker → parent | Ready, Broken, Log, Retiring; RecheckCandidate; Checked |

For each Make a worker also sends a TaskResult (`detaug.engine.batch_maker`), in the order of the
Makes, with the descriptor of the batch's slot if that is new.

Standard library only: a helper for "spawn" starts in milliseconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

    from detaug.engine.batch_maker import TaskResult
    from detaug.engine.errors_from_workers import ErrorRecord
    from detaug.engine.recheck.requests import Answer, RecheckCandidate
    from detaug.pipeline.loader_states import LoaderState


# --- to the helper


class Quit(NamedTuple):
    """End."""


class Start(NamedTuple):
    """Start a worker; with the worker's end of its channel."""

    number: int


class Kill(NamedTuple):
    """Kill a worker."""

    number: int


# --- from the helper


class Exited(NamedTuple):
    """A worker has ended. `peak`: the most memory it had, in bytes."""

    number: int
    exitcode: int
    peak: int


class CannotStart(NamedTuple):
    """A worker could not be started."""

    number: int
    why: str


# --- to a worker


class Make(NamedTuple):
    """Make a batch.

    Attributes:
        given_back, dropped: slots to be filled again, and slots that are not needed any more.
        state: of its stream's loader, from which the batch is near.
        place: which of the workers it is, 0 ... num_processes-1.
    """

    epoch: int
    step: int
    given_back: Sequence[int]
    dropped: Sequence[int]
    state: LoaderState | None
    place: int


# --- from a worker


class Ready(NamedTuple):
    """It has set itself up."""

    pid: int


class Broken(NamedTuple):
    """It could not."""

    record: ErrorRecord


class Log(NamedTuple):
    """Something that the user should know."""

    text: str
    level: int


class Retiring(NamedTuple):
    """It has that many bytes of private memory, and makes nothing more."""

    private: int


class Checked(NamedTuple):
    """The answer to `MakeAgain` or `Explain`, and the seconds that it took."""

    answer: Answer
    seconds: float


if TYPE_CHECKING:
    FromWorker: TypeAlias = (
        Ready | Broken | Log | Retiring | RecheckCandidate | Checked | TaskResult
    )
