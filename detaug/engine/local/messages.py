"""Messages between the parent, its helper and the workers.

| from, to | messages |
|---|---|
| parent → helper | Start, Kill, Quit |
| helper → parent | Exited, CannotStart |
| parent → worker | Make; RecheckRequest, TraceRequest (`detaug.engine.recheck.requests`) |
| worker → parent | Ready, Broken, Log, Retiring; RecheckCandidate; RecheckReply |

For each Make a worker also sends a TaskResult (`detaug.engine.batch_maker`), in the order of the
Makes, with the descriptor of the batch's slot if that is new.

Standard library only: a helper for "spawn" starts in milliseconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

# For annotations only: the helper imports this module, and its messages need none of these.
if TYPE_CHECKING:
    from collections.abc import Sequence

    from detaug.engine.batch_maker import TaskResult
    from detaug.engine.errors_from_workers import ErrorRecord
    from detaug.engine.recheck.requests import RecheckCandidate, Response
    from detaug.pipeline.loader_states import LoaderState


# --- to the helper


class Quit(NamedTuple):
    """A request to end the workers and itself."""


class Start(NamedTuple):
    """A request to start a worker; sent with the descriptor of the worker's end of its channel."""

    worker_id: int


class Kill(NamedTuple):
    """A request to kill a worker."""

    worker_id: int


# --- from the helper


class Exited(NamedTuple):
    """A worker has ended.

    Attributes:
        worker_id: the worker.
        exitcode: negative for a signal.
        peak: the most memory that it had, in bytes.
    """

    worker_id: int
    exitcode: int
    peak: int


class CannotStart(NamedTuple):
    """A worker could not be started."""

    worker_id: int
    reason: str


# --- to a worker


class Make(NamedTuple):
    """A request to make a batch.

    Attributes:
        epoch: the batch's epoch.
        step: the batch's step.
        released: ids of slots that may be filled again.
        dropped: ids of slots that are not needed any more.
        state: a state of its stream's loader shortly before the batch; None: none is needed.
        worker_index: the worker's index, 0 ... num_processes - 1; -1: it is the checker.
    """

    epoch: int
    step: int
    released: Sequence[int]
    dropped: Sequence[int]
    state: LoaderState | None
    worker_index: int


# --- from a worker


class Ready(NamedTuple):
    """The worker has set itself up."""

    pid: int


class Broken(NamedTuple):
    """The worker could not set itself up."""

    record: ErrorRecord


class Log(NamedTuple):
    """A message that the user should see."""

    text: str
    level: int


class Retiring(NamedTuple):
    """The worker exceeds its limit of memory, and makes no more batches.

    Attributes:
        private: its private memory, in bytes.
    """

    private: int


class RecheckReply(NamedTuple):
    """The response to a `RecheckRequest` or `TraceRequest`, and the seconds that it took."""

    response: Response
    seconds: float


if TYPE_CHECKING:
    FromWorker: TypeAlias = (
        Ready | Broken | Log | Retiring | RecheckCandidate | RecheckReply | TaskResult
    )
