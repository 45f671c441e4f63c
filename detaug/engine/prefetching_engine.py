"""The user's side of an engine that makes batches ahead of time, in a thread of its own.

Division of labour:
- The user's threads read the due outcome and move the position, under the lock, and wake the
  engine's thread.
- The engine's thread assigns tasks, records their outcomes, and wakes the user's threads that wait
  for one.

Both sides share the schedule, under `_lock`, and a few attributes that change by one operation of C
code each, so that an interrupt in the user's thread finds them in a consistent state.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import torch
from torch.utils.data._utils.pin_memory import pin_memory

from detaug.engine import errors_from_workers as failures
from detaug.engine.batch_maker import TaskResult
from detaug.engine.executor import EngineContext
from detaug.engine.outcomes import (
    Delivered,
    EpochEnd,
    Failed,
    Outcome,
    Position,
    SkipLog,
)
from detaug.engine.recheck.rechecker import Recheck
from detaug.engine.schedule import Schedule
from detaug.errors import ReproducibilityError
from detaug.pipeline.loader_states import LoaderState
from detaug.pipeline.plan import BatchKey
from detaug.system.limits import explained
from detaug.system.processes import signal_name

logger = logging.getLogger("detaug")

#: Seconds for which the end of an epoch waits for pending checks. With "spawn" on a busy machine
#: their process takes long to start.
_EPOCH_END_PATIENCE = 60.0
#: Seconds for which `close` waits for pending checks.
_CLOSE_PATIENCE = 2.0
#: Seconds between two looks at pending checks.
_CHECK_POLL_SECONDS = 0.002
#: Tasks that a worker has at a time: one that it is making, and one that waits, so that no time is
#: lost between the two.
_TASKS = 2


def assign_tasks(
    schedule: Schedule, workers: Sequence[Any], starting: Collection[int] = ()
) -> Iterator[tuple[Any, BatchKey]]:
    """Yield (worker, task) for each task that can be assigned; the schedule counts it as begun.

    No worker gets a second task before every worker has its first one.

    Args:
        workers: the workers that are ready. They have an `index`, to which streams belong, and
            `tasks`, the tasks that they have already.
        starting: indices of workers that will be ready in a moment: nobody takes over their
            streams.
    """
    present = {worker.index for worker in workers} | set(starting)
    for num_tasks in range(_TASKS):
        for worker in workers:
            if len(worker.tasks) > num_tasks:
                continue
            key = schedule.next_for(worker.index, present, is_idle=not worker.tasks)
            if key is not None:
                schedule.start(key, worker.index)
                yield worker, key
            elif schedule.stateless:
                # Any worker may make any batch: if there is no task for one, there is none at all.
                return


def _nothing_to_mark() -> None:
    """Do nothing: the memory of this batch does not have to be marked as the user's."""


class PrefetchingEngine:
    """The base class of engines that make batches ahead of time. Implements `Engine`.

    A subclass creates the recheck (`_recheck`), starts and stops its processes, implements one turn
    of the thread (`_run_once`) and its wake-up (`_wake`), and calls `_begin` when it is complete.

    Args:
        context: the batches to make.
        max_restarts: number of workers that one batch may end in a row.
    """

    prefetches = True
    _thread: threading.Thread
    _recheck: Recheck

    def __init__(self, context: EngineContext, max_restarts: int) -> None:
        self._context = context
        self._max_restarts = max(1, max_restarts)
        self._schedule = context.schedule
        self._lock = threading.Lock()
        # A queue of C code: an interrupt in the user's thread leaves it in a consistent state.
        self._wakeups: queue.SimpleQueue[None] = queue.SimpleQueue()
        # The ids of the user's threads that wait for a batch. Only C code changes it, too.
        self._waiting: set[int] = set()
        self._closing = False
        self._fatal: BaseException | None = None
        self._fatal_is_reported = False
        self._owner_pid = os.getpid()
        # Every worker sends the same warning.
        self.warn_once = context.pipeline.warn_once
        self._skip_log = SkipLog()
        # The engine's thread has a current device of its own, which is set to the user's.
        self._gpu: int | None = None
        if context.pin_memory and torch.cuda.is_available():
            self._gpu = torch.cuda.current_device()
        self._deaths: dict[BatchKey, int] = {}

    # --- implemented by a subclass

    def _wake(self) -> None:
        """Make the engine's thread look at changes; called from any thread."""
        raise NotImplementedError

    def _start_workers(self) -> None:
        """Start the processes."""
        raise NotImplementedError

    def _stop_workers(self) -> None:
        """Stop the processes."""
        raise NotImplementedError

    def _run_once(self) -> None:
        """Assign open tasks, and wait for the next event."""
        raise NotImplementedError

    # --- the user's thread

    def wait(self) -> Any:
        """Return the due batch, waiting for it if necessary. Implements `Engine.wait`."""
        thread_id = threading.get_ident()
        try:
            batch = self._wait(thread_id)
        except StopIteration:
            # An interrupt before this line leaves the end due; after it, the end was reached.
            self._schedule.on_the_way.pop(thread_id, None)
            raise
        except BaseException:
            # KeyboardInterrupt as well. If another one comes before all of this is done, the rest
            # is done when this thread uses the schedule next.
            self.put_back()
            raise
        finally:
            self._waiting.discard(thread_id)
            if self._waiting:
                # One wake-up wakes one thread, and the next outcome may be there for another.
                self._wake_user()
        return batch

    def _wait(self, thread_id: int) -> Any:
        while True:
            with self._lock:
                # Before the front is read: a batch may be due again.
                self._schedule.put_back(thread_id)
                front_before = self._schedule.front
                result = self._schedule.take(thread_id)
                has_moved = self._schedule.front is not front_before
                fatal = self._fatal
                if result.outcome is None:
                    # Before the lock is released: the engine's thread wakes this thread for every
                    # outcome that arrives from then on.
                    self._waiting.add(thread_id)
            for skipped in result.skipped:
                self._skip_log.warn(skipped)
            if has_moved:
                # The window has moved with the front: there are new tasks.
                self._wake()

            outcome = result.outcome
            if isinstance(outcome, Delivered):
                self._context.recheck_policy.user_is_in(result.position.epoch)
                return self._delivered(outcome, fatal)
            if isinstance(outcome, EpochEnd):
                self._finish_epoch()
                raise StopIteration
            self._raise_if_it_cannot_come(outcome, fatal)
            self._wakeups.get()

    def _delivered(self, outcome: Delivered, fatal: BaseException | None) -> Any:
        """Return the batch, or raise if a check has found that the run is not reproducible."""
        # Only this error withholds a finished batch. After any other one the batches that were made
        # before it are still good, and the error is raised where the first one is missing.
        if isinstance(fatal, ReproducibilityError):
            raise self._reported(fatal)
        if outcome.mark_delivered is not None:
            outcome.mark_delivered()
        return outcome.batch

    def hand_over(self) -> Any:
        """Return the batch, which is due no longer. Implements `Engine.hand_over`."""
        return self._schedule.on_the_way.pop(threading.get_ident()).outcome.batch  # type: ignore[union-attr]

    def put_back(self) -> None:
        """Leave the batch due. Implements `Engine.put_back`."""
        with self._lock:
            self._schedule.put_back(threading.get_ident())
        self._wake()

    def _finish_epoch(self) -> None:
        """Wait for pending checks, and raise what they find."""
        self._await_checks(_EPOCH_END_PATIENCE)
        if self._fatal is not None:
            raise self._reported(self._fatal)

    def _raise_if_it_cannot_come(
        self, outcome: Outcome | None, fatal: BaseException | None
    ) -> None:
        """Raise if the due batch has failed, or if there will be no more batches."""
        if isinstance(outcome, Failed):
            # The same object is raised at every call: its traceback would grow, and keep the frames
            # of all earlier calls alive.
            raise outcome.error.with_traceback(None)
        if fatal is not None:
            raise self._reported(fatal)
        if self._closing:
            raise RuntimeError("the augmenter was closed while its next batch was awaited")

    def _reported(self, fatal: BaseException) -> BaseException:
        """Return the error for the user, and record that the user sees it."""
        self._fatal_is_reported = True
        return fatal.with_traceback(None)

    def move(self, position: Position) -> None:
        """Continue at another position. Implements `Engine.move`."""
        with self._lock:
            self._schedule.position = position
            self._schedule.forget_failures()
        self._wake()

    def _await_checks(self, seconds: float) -> None:
        """Wait at most `seconds` for pending checks, so that the user learns of them in time."""
        self._context.recheck_policy.end_is_near()
        deadline = time.monotonic() + seconds
        while (
            self._recheck.is_pending
            and self._fatal is None
            and not self._closing
            and time.monotonic() < deadline
        ):
            if not self._thread.is_alive():
                return
            # Polled: a check ends in several ways, without an event for any of them, and this wait
            # happens once in an epoch.
            self._wake()
            time.sleep(_CHECK_POLL_SECONDS)

    def close(self) -> None:
        """End the processes and the thread. Implements `Engine.close`."""
        # In a fork of the user's process the workers belong to the parent.
        if os.getpid() != self._owner_pid or self._closing:
            return
        self._await_checks(_CLOSE_PATIENCE)
        # Before the wake-up: the thread that is woken looks at it.
        self._closing = True
        self._wake()
        # Not under the lock, which the thread acquires before it ends. The garbage collector closes
        # an augmenter in any thread, in this one as well, which cannot wait for itself.
        if threading.current_thread() is not self._thread:
            self._thread.join()
        if isinstance(self._fatal, ReproducibilityError) and not self._fatal_is_reported:
            # A check found it after the last batch was taken.
            logger.warning("%s", self._reported(self._fatal))

    # --- the engine's thread

    def _begin(self, name: str) -> None:
        """Start the processes and the thread; end those that were started if one fails to start."""
        try:
            self._start_workers()
            self._thread = threading.Thread(target=self._run, name=name, daemon=True)
            self._thread.start()
        except BaseException:
            self._closing = True
            self._tear_down()
            raise

    def _run(self) -> None:
        """Run the engine's thread until the engine is closed or fails."""
        try:
            if self._gpu is not None:
                torch.cuda.set_device(self._gpu)
            while not self._closing:
                self._run_once()
        except OSError as error:
            self.fail(explained(error, "the workers cannot continue"))
        except Exception as error:
            # A defect of this package must not leave the user waiting forever.
            logger.exception("the engine's thread failed")
            self.fail(error)
        finally:
            self._tear_down()

    def _tear_down(self) -> None:
        self._recheck.close()
        # Their memory is released now, not when the engine is garbage-collected.
        with self._lock:
            self._schedule.forget_all()
        self._stop_workers()
        self._wake_user()

    def _wake_user(self) -> None:
        """Wake one of the user's threads that wait, if there is one."""
        # One unread wake-up is enough: its reader looks at everything that changed before it.
        if self._wakeups.empty():
            self._wakeups.put(None)

    def _wake_user_if_due(self) -> None:
        """Wake one of the user's threads if there is something for it."""
        # A thread that does not wait looks for itself before it does.
        if not self._waiting:
            return
        with self._lock:
            position, outcome = self._schedule.due()
            # Skipped steps fill the window until the user's thread moves past them.
            is_due = outcome is not None or position != self._schedule.front
        if is_due:
            self._wake_user()

    def fail(self, error: BaseException) -> None:
        """End the run with an error: there will be no more batches."""
        # The first error counts: a later one may be of a check that names no cause.
        if self._fatal is None:
            # Before the wake-up: the thread that is woken looks at it.
            self._fatal = error
        self._wake_user()

    def _finish(self, key: BatchKey, outcome: Outcome) -> None:
        # The user may have moved since the task was assigned: the schedule then drops the outcome.
        with self._lock:
            self._schedule.finish(key, outcome)

    def _requeue(self, keys: list[BatchKey]) -> None:
        """Make tasks open again whose worker is gone."""
        with self._lock:
            for key in keys:
                self._schedule.requeue(key)

    def _on_task_crashed(
        self, key: BatchKey, worker: str, reason: str, exitcode: int | None = None, peak: int = 0
    ) -> None:
        """Requeue a task that ended its worker, or fail it if it has ended too many in a row.

        Args:
            key: the task.
            worker: the worker's name.
            reason: why the worker ended; empty: unknown.
            exitcode: the worker's; None: it ran on another machine.
            peak: the most memory that it had, in bytes; 0: unknown.
        """
        times = self._deaths.get(key, 0) + 1
        self._deaths[key] = times
        if times >= self._max_restarts:
            del self._deaths[key]
            error = failures.worker_died(key, self._context.locator, times, exitcode, peak, reason)
            self._finish(key, self._context.failed(error))
            return
        text = f"{worker} ended"
        if exitcode is not None:
            text += f" with {signal_name(exitcode)}"
        if peak:
            text += f", its memory having peaked at {peak / 2**20:.0f} MiB,"
        batch = failures.describe_batch(key, self._context.locator)
        text += f" while making {batch}; another worker is rebuilding the batch"
        if reason:
            text += f" ({reason.rstrip('.')})"
        logger.warning("%s", text)
        self._requeue([key])

    def _state_for(
        self, stream_positions: dict[int, tuple[int, int]], key: BatchKey
    ) -> LoaderState | None:
        """Return the loader's state that a worker needs for a task; None: it needs none.

        Args:
            stream_positions: stream → the (epoch, turn) that the worker's copy of it gives next.
                This is updated to the position after the task.
            key: the task.
        """
        plan = self._schedule.plan
        stream = plan.stream_of(key.step)
        stream_position = stream_positions.get(stream)
        stream_positions[stream] = (key.epoch, plan.turn_of(key.step) + 1)
        return self._context.states.latest(key, stream_position)

    def _take_result(
        self,
        key: BatchKey,
        result: TaskResult,
        seconds: float,
        where: str,
        open_batch: Callable[[], Any],
        get_mark: Callable[[], Callable[[], None] | None] = _nothing_to_mark,
    ) -> None:
        """Record the result of a task.

        Args:
            key: the task.
            result: its result.
            seconds: how long the task took.
            where: the worker, for messages.
            open_batch: returns the batch of a result without an error.
            get_mark: returns the function that marks the batch as the user's, or None; called after
                `open_batch`.
        """
        self._context.record_task(seconds, result.state)
        self._deaths.pop(key, None)
        if result.ended:
            with self._lock:
                self._schedule.end_stream(key)
            return
        self._finish(key, self._outcome_of(key, result, where, open_batch, get_mark))
        # Now, not after the next result: to unpack that takes a while.
        self._wake_user_if_due()

    def _outcome_of(
        self,
        key: BatchKey,
        result: TaskResult,
        where: str,
        open_batch: Callable[[], Any],
        get_mark: Callable[[], Callable[[], None] | None],
    ) -> Outcome:
        """Return the outcome of a task whose stream has not ended; see `_take_result`."""
        locator = self._context.locator
        if result.error is not None:
            return self._context.failed(failures.error_of(result.error, key, locator, where))
        try:
            batch = open_batch()
            # A copy: memory of a slot cannot be page-locked, because the slot is filled again as
            # soon as its arrays are garbage, while an asynchronous copy to the GPU may still read.
            if self._gpu is not None:
                batch = pin_memory(batch)  # type: ignore[no-untyped-call]
            return Delivered(batch, get_mark())
        except Exception as error:
            record = failures.describe(error)
            where = "in the parent process, which could not take the batch in"
            return self._context.failed(failures.error_of(record, key, locator, where, error))
