"""The contract between the augmenter and the engines that make its batches.

The augmenter describes the batches (`EngineContext`); an `Executor` starts an `Engine` for them, in
this process, in other processes of this machine, or on other machines. The bytes of a batch depend
on the context only, so an executor may choose where and when a batch is made, and nothing else.
Every executor passes the suite `tests/support/executor_suite.py`.

An engine that makes batches ahead of time derives from
`detaug.engine.prefetching_engine.PrefetchingEngine`. An executor for other machines is a package of
its own, such as `detaug.ray`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from detaug.engine.errors_from_workers import BatchLocator
from detaug.engine.outcomes import Failed, Outcome, Position, skipped_outcome
from detaug.engine.recheck.policy import RecheckPolicy
from detaug.engine.replayer import Replayer
from detaug.engine.schedule import Schedule
from detaug.engine.wait_stats import RunStats
from detaug.engine.worker_config import WorkerConfig
from detaug.errors import BatchError
from detaug.pipeline.loader_states import LoaderState, LoaderStates
from detaug.pipeline.plan import BatchKey
from detaug.pipeline.producer import Pipeline

#: One batch may end this many workers in a row; then `WorkerDied` is raised.
DEFAULT_MAX_RESTARTS = 8


@dataclass(frozen=True)
class EngineContext:
    """The batches that an engine makes, and the objects that it shares with the augmenter.

    Attributes:
        pipeline: the source and the transform.
        worker_config: the configuration of the processes that make batches.
        schedule: the order of the batches. An engine with threads of its own guards it with a lock;
            the augmenter reads its position only.
        locator: locates a batch in messages.
        skip_errors: True: batches whose loader or transform raises are left out. False: the error
            is raised.
        pin_memory: True: tensors are copied to page-locked memory if there is a GPU. False: never.
        recheck_policy: chooses the batches that are made a second time.
        states: the states of loaders from which streams can resume.
        run_stats: statistics of the run.
        replayer: replays batches in this process.
        num_processes: the user's ``num_processes``.
    """

    pipeline: Pipeline
    worker_config: WorkerConfig
    schedule: Schedule
    locator: BatchLocator
    skip_errors: bool
    pin_memory: bool
    recheck_policy: RecheckPolicy
    states: LoaderStates
    run_stats: RunStats
    replayer: Replayer
    num_processes: int

    def record_task(self, seconds: float, state: LoaderState | None) -> None:
        """Record that a task was run.

        Args:
            seconds: how long it took.
            state: the state of its stream's loader after the batch; None: it was not taken.
        """
        if state is not None:
            # Read without the schedule's lock: an outdated position keeps a few more states.
            position = self.schedule.position
            self.states.add(state, BatchKey(position.epoch, position.step))
        self.recheck_policy.add_batch_time(seconds)
        self.run_stats.work_seconds += seconds

    def failed(self, error: BatchError) -> Outcome:
        """Return the outcome of a batch that cannot be made."""
        # A KeyboardInterrupt of the user's code would end a program without workers, so it must not
        # be skipped in a worker either.
        if not self.skip_errors or isinstance(error.original, KeyboardInterrupt):
            return Failed(error)
        return skipped_outcome(error, self.schedule.max_skips)


class Engine(Protocol):
    """An iterator over the batches of a context, in order.

    The user's threads call `wait`, `hand_over`, `put_back` and `move`.
    """

    #: True: it makes batches ahead of time, in other processes; it runs until `close`, and a fork
    #: of this process cannot use it. False: it makes each batch when it is asked for.
    prefetches: bool

    def wait(self) -> Any:
        """Return the due batch, waiting for it if necessary. It is due until `hand_over`.

        Any exception, including KeyboardInterrupt, leaves it due.

        Raises:
            StopIteration: the epoch has ended; the position is the start of the next epoch.
            BatchError: the due batch cannot be made; raised again until the position is moved.
            ReproducibilityError: a batch that was made a second time differs.
        """

    def hand_over(self) -> Any:
        """Return the batch that `wait` has returned to this thread, which is due no longer.

        Once it is no longer due there is no line in which an interrupt could be raised.
        """

    def put_back(self) -> None:
        """Give up the batch that `wait` has returned to this thread: it stays due."""

    def move(self, position: Position) -> None:
        """Continue at another position, and try failed batches again.

        Batches that were made, or are being made, may be kept if they are needed there too.
        """

    def close(self) -> None:
        """End everything that was started, and release all memory except the user's batches.

        It may be called several times, from any thread. In a fork it does nothing.
        """


class Executor(Protocol):
    """A factory of engines, which the user passes as ``executor=``."""

    @property
    def requires_pickling(self) -> bool:
        """True: the pipeline is pickled for other interpreters. False: it stays in this one.

        If True, the augmenter's constructor refuses a pipeline that cannot be pickled.
        """

    def num_workers(self, num_processes: int) -> int:
        """Return the number of batches that are made at a time.

        The window has ``num_cached`` steps more. 0: each batch is made in this process when it is
        asked for.

        Args:
            num_processes: the user's ``num_processes``.

        Raises:
            ValueError: with that many processes, the executor or the argument has no effect.
        """

    def start(self, context: EngineContext) -> Engine:
        """Return an engine that starts at the schedule's position.

        Raises:
            RuntimeError, OSError: it cannot be started; everything that was started has been ended.
        """
