"""The contract between the augmenter and what makes its batches: in this process, in processes of
this machine, elsewhere.

The augmenter knows what is to be made (`EngineContext`); an `Executor` starts an `Engine` for it. A
batch's bytes follow from the work alone, so an executor may choose where and when each is made, and
nothing else. `tests/support/executor_suite.py` is the suite that every executor passes.

An engine that makes batches ahead derives from
`detaug.engine.prefetching_engine.PrefetchingEngine`. An executor for other machines is a room of
its own, as `detaug.ray` is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from detaug.engine.errors_from_workers import BatchLocator
from detaug.engine.job import WorkerConfig
from detaug.engine.outcomes import Failed, Outcome, Position, skipped_outcome
from detaug.engine.recheck.policy import RecheckPolicy
from detaug.engine.replayer import Replayer
from detaug.engine.schedule import Schedule
from detaug.engine.wait_stats import RunStats
from detaug.errors import BatchError
from detaug.pipeline.loader_states import LoaderState, LoaderStates
from detaug.pipeline.plan import BatchKey
from detaug.pipeline.producer import Pipeline

#: Workers that one batch may end in a row.
DEFAULT_MAX_RESTARTS = 8


@dataclass(frozen=True)
class EngineContext:
    """What is to be made, and what is known of it.

    Attributes:
        schedule: which batch is due, and which to make. An engine with threads of its own guards it
            with a lock; the augmenter reads its position only.
    """

    pipeline: Pipeline
    job: WorkerConfig
    schedule: Schedule
    places: BatchLocator  # for messages
    skip_errors: bool  # batches whose loader or transform raises are left out
    pin_memory: bool  # tensors are copied to page-locked memory where there is a GPU
    checks: RecheckPolicy
    states: LoaderStates
    health: RunStats
    replayer: Replayer  # makes batches again in this process
    num_processes: int  # what the user asked for

    def took(self, seconds: float, state: LoaderState | None) -> None:
        """Note that a batch took `seconds` of work; `state`: of its stream's loader behind it."""
        if state is not None:
            self.states.add(state, BatchKey(*self.schedule.position[:2]))
        self.checks.worked(seconds)
        self.health.worked += seconds

    def failed(self, error: BatchError) -> Outcome:
        """Return the outcome of a batch that cannot be made."""
        # What a worker's code raises as Ctrl-C would, ends a program without workers.
        if not self.skip_errors or isinstance(error.original, KeyboardInterrupt):
            return Failed(error)
        return skipped_outcome(error, self.schedule.max_skips)


class Engine(Protocol):
    """Gives the batches of its work in order. `next`, `put_back` and `move` are called by the
    user's threads.
    """

    #: Whether it makes batches ahead, in other processes. Then it lives on until `close`, and no
    #: fork can use it.
    prefetches: bool

    def next(self) -> Any:
        """The due batch, once it is there. The position moves behind it last of all: whatever is
        raised before that, KeyboardInterrupt too, leaves the batch due.

        Raises:
            StopIteration: the epoch has ended; the position is at the start of the next one.
            BatchError: the due batch cannot be made; raised again until the position is moved.
            ReproducibilityError: a batch that was made a second time differs.
        """

    def put_back(self, batch: Any) -> None:
        """The batch that `next` has just given is due again."""

    def move(self, position: Position) -> None:
        """Go elsewhere. What is already there or being made for the new place may be kept; what
        failed is tried again.
        """

    def close(self) -> None:
        """End everything that was started, and give back all memory but that of batches the user
        holds. May be called several times, from any thread, and in a fork, where it does nothing.
        """


class Executor(Protocol):
    """Starts engines."""

    @property
    def travels(self) -> bool:
        """Whether the pipeline is sent to other interpreters, so that what cannot be is refused
        when the augmenter is made.
        """

    def num_workers(self, num_processes: int) -> int:
        """How many batches are made at a time, where the user asked for so many processes: the
        window has as many steps more than ``num_cached``. 0: each is made in this process when it
        is asked for.

        Raises:
            ValueError: with so many processes the executor would have no effect, or they with it.
        """

    def start(self, work: EngineContext) -> Engine:
        """An engine at the schedule's position.

        Raises:
            RuntimeError, OSError: it cannot be started; nothing is left behind.
        """
