"""The user's side of an engine that makes batches ahead, in a thread of its own.

Division of labour:
- the user's threads read the due outcome and move the position, under the lock, and wake the
  engine's thread;
- the engine's thread hands out what is to be made, takes in what was made, and tells waiting users
  of what is due.

What the two share is the schedule, under `_lock`, and a few attributes that change by one operation
of C code each, so that an interrupt in the user's thread finds them whole.
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
    TakeResult,
)
from detaug.engine.recheck.rechecker import Recheck
from detaug.engine.schedule import Schedule
from detaug.errors import ReproducibilityError
from detaug.pipeline.loader_states import LoaderState
from detaug.pipeline.plan import BatchKey
from detaug.system.limits import explained
from detaug.system.processes import signal_name

logger = logging.getLogger("detaug")

#: How long (seconds) an epoch's end waits for checks that are under way: under "spawn" on a busy
#: machine their process takes long to start.
_EPOCH_END_PATIENCE = 60.0
#: How long (seconds) `close` waits for checks that are under way.
_CLOSE_PATIENCE = 2.0


#: Tasks that a worker has at a time: one that it is making, and one that waits, so that no time is
#: lost between the two.
_TASKS = 2


def assign_tasks(
    schedule: Schedule, workers: Sequence[Any], starting: Collection[int] = ()
) -> Iterator[tuple[Any, BatchKey]]:
    """Yield the workers that are to make a batch, and which one; the schedule counts it as begun.

    None gets a second batch before each has its first.

    Args:
        workers: Those that are there. They have an `index`, to which streams belong, and `tasks`:
            the batches they were given.
        starting: Indices of workers that will be there in a moment. Nobody takes their streams
            over.
    """
    present = {worker.index for worker in workers} | set(starting)
    for number in range(_TASKS):
        for worker in workers:
            if len(worker.tasks) > number:
                continue
            key = schedule.next_for(worker.index, present, is_idle=not worker.tasks)
            if key is not None:
                schedule.start(key, worker.index)
                yield worker, key
            elif schedule.stateless:
                return  # nor is there one for any other


class PrefetchingEngine:
    """What `detaug.engine.executor.Engine` asks for.

    A subclass makes the run-time check (`_checking`), starts and stops its processes, says what the
    thread does (`_turn`) and how it is woken (`_wake`), and starts all of it (`_begin`).
    `max_restarts`: workers that one batch may end in a row.
    """

    prefetches = True
    _thread: threading.Thread
    _checking: Recheck

    def __init__(self, work: EngineContext, max_restarts: int) -> None:
        self._work = work
        self._max_restarts = max(1, max_restarts)
        self._schedule = work.schedule
        self._lock = threading.Lock()
        # C code throughout, so that an interrupt in the user's thread finds it whole.
        self._news: queue.SimpleQueue[None] = queue.SimpleQueue()
        # The threads that wait for a batch. As with the news, what changes it is C code.
        self._waiting: set[int] = set()
        self._closing = False
        self._fatal: BaseException | None = None
        self._fatal_is_told = False
        self._owner = os.getpid()
        self.warn_once = work.pipeline.warn_once  # every worker says it
        self._skip_log = SkipLog()
        # A thread has a current device of its own.
        self._gpu = (
            torch.cuda.current_device() if work.pin_memory and torch.cuda.is_available() else None
        )
        self._deaths: dict[BatchKey, int] = {}

    # --- what a subclass says

    def _wake(self) -> None:
        """Have the engine's thread look at what has changed."""
        raise NotImplementedError

    def _start_workers(self) -> None:
        raise NotImplementedError

    def _stop_workers(self) -> None:
        raise NotImplementedError

    def _turn(self) -> None:
        """Give out what can be given out, and wait for what happens next."""
        raise NotImplementedError

    # --- the user's thread
    # ----------------------------------------------------------------------------------------

    def next(self) -> Any:
        """See `detaug.engine.executor.Engine`; so with the following."""
        taken: TakeResult | None = None
        me = threading.get_ident()
        try:
            while True:
                with self._lock:
                    before = self._schedule.position
                    taken = self._schedule.take()
                    outcome = taken.outcome
                    if outcome is None:
                        # Before the lock is released: what comes from then on, the engine's thread
                        # tells us of.
                        self._waiting.add(me)
                    moved = self._schedule.position is not before
                    fatal = self._fatal
                for skipped in taken.passed:
                    self._skip_log.say(skipped)
                if moved:
                    self._wake()  # the window has moved with the position
                if isinstance(outcome, Delivered) and isinstance(fatal, ReproducibilityError):
                    raise self._told(fatal)
                if isinstance(outcome, Delivered):
                    if outcome.mark_delivered is not None:
                        outcome.mark_delivered()
                    return outcome.batch
                if isinstance(outcome, EpochEnd):
                    self._await_checks(_EPOCH_END_PATIENCE)
                    if self._fatal is not None:
                        raise self._told(self._fatal)
                    break
                if isinstance(outcome, Failed):
                    raise outcome.error.with_traceback(None)
                if fatal is not None:
                    raise self._told(fatal)
                if self._closing:
                    raise RuntimeError("the augmenter was closed while its next batch was awaited")
                self._news.get()
        except BaseException:  # Ctrl-C just now: the batch is still due
            if taken is not None:
                self._put_back(taken.position, taken.outcome)
            raise
        finally:
            self._waiting.discard(me)
            if self._waiting:
                # one note wakes one thread; the next one may have something to take as well
                self._tell_user()
        raise StopIteration

    def put_back(self, batch: Any) -> None:
        assert self._schedule.taken is not None
        self._put_back(self._schedule.taken, Delivered(batch))

    def _put_back(self, position: Position, outcome: Outcome | EpochEnd | None) -> None:
        with self._lock:
            self._schedule.put_back(position, outcome)
        self._wake()

    def move(self, position: Position) -> None:
        with self._lock:
            self._schedule.position = position
            self._schedule.forget_failures()
        self._wake()

    def _told(self, fatal: BaseException) -> BaseException:
        self._fatal_is_told = True
        return fatal.with_traceback(None)

    def _await_checks(self, seconds: float) -> None:
        """Wait for checks that are under way, so that what they find is not said too late."""
        self._work.checks.end_is_near()
        until = time.monotonic() + seconds
        while (
            self._checking.is_pending
            and self._fatal is None
            and not self._closing
            and time.monotonic() < until
        ):
            if not self._thread.is_alive():
                return
            self._wake()
            time.sleep(0.002)

    def close(self) -> None:
        if os.getpid() != self._owner or self._closing:
            return  # a fork of the user's process has no business with our workers
        self._await_checks(_CLOSE_PATIENCE)
        self._closing = True  # first: the thread that is woken looks for it
        self._wake()
        # Without the lock, which the thread takes on its way out. A collected augmenter is closed
        # by whatever thread collects it.
        if threading.current_thread() is not self._thread:
            self._thread.join()
        if isinstance(self._fatal, ReproducibilityError) and not self._fatal_is_told:
            logger.warning(
                "%s", self._told(self._fatal)
            )  # a check found it after the last batch was taken

    # --- the engine's thread
    # --------------------------------------------------------------------------------------

    def _begin(self, name: str) -> None:
        """Start the processes and the thread; nothing is left behind where they cannot be started."""
        try:
            self._start_workers()
            self._thread = threading.Thread(target=self._run, name=name, daemon=True)
            self._thread.start()
        except BaseException:
            self._closing = True
            self._tear_down()
            raise

    def _run(self) -> None:
        try:
            if self._gpu is not None:
                torch.cuda.set_device(self._gpu)
            while not self._closing:
                self._turn()
        except OSError as error:
            self.fail(explained(error, "the workers cannot go on"))
        except Exception as error:  # a defect of ours must not leave the user waiting for ever
            logger.exception("the engine's thread failed")
            self.fail(error)
        finally:
            self._tear_down()

    def _tear_down(self) -> None:
        self._checking.close()
        with self._lock:
            self._schedule.forget_all()  # their memory goes now, not when garbage is collected
        self._stop_workers()
        self._tell_user()

    def _tell_user(self) -> None:
        # One unread note is enough: its reader looks at everything that changed before it.
        if self._news.empty():
            self._news.put(None)

    def _tell_what_is_due(self) -> None:
        # A thread that does not wait looks for itself; one that waits for another batch need not
        # wake.
        if self._waiting:
            with self._lock:
                position, outcome = self._schedule.due()
                # Steps that were skipped fill the window until the user's thread moves past them.
                news = outcome is not None or position != self._schedule.position
            if news:
                self._tell_user()

    def fail(self, error: BaseException) -> None:
        """There can be no more batches."""
        self._fatal = error  # first: who is told looks for it
        self._tell_user()

    def _finish(self, key: BatchKey, outcome: Outcome) -> None:
        # The user may have moved since it was given out: the schedule then drops what is not
        # wanted.
        with self._lock:
            self._schedule.finish(key, outcome)

    def _lose(self, keys: list[BatchKey]) -> None:
        """Have these batches made again."""
        with self._lock:
            for key in keys:
                self._schedule.lose(key)

    def _blame(
        self, key: BatchKey, worker: str, why: str, exitcode: int | None = None, peak: int = 0
    ) -> None:
        """A worker ended while it made this, `why` if that is known: another makes it again, unless
        it has ended too many in a row. `exitcode`: None on another machine; `peak`: the most memory
        it had, in bytes, 0 if that is not known.
        """
        times = self._deaths[key] = self._deaths.get(key, 0) + 1
        if times >= self._max_restarts:
            del self._deaths[key]
            error = failures.died(key, self._work.places, times, exitcode, peak, why)
            self._finish(key, self._work.failed(error))
            return
        how = "" if exitcode is None else f" with {signal_name(exitcode)}"
        memory = f", its memory having peaked at {peak / 2**20:.0f} MiB," if peak else ""
        known = f" ({why.rstrip('.')})" if why else ""
        text = "%s ended%s%s while making %s; another worker is rebuilding the batch%s"
        logger.warning(
            text, worker, how, memory, failures.describe_batch(key, self._work.places), known
        )
        self._lose([key])

    def _state_for(
        self, stream_positions: dict[int, tuple[int, int]], key: BatchKey
    ) -> LoaderState | None:
        """Return the loader's state that a worker needs to make this batch; None: it needs none.

        Args:
            stream_positions: Of each stream that the worker has a copy of, the (epoch, turn) that
                the copy gives next. It is changed to what it will be after the batch.
            key: The batch.
        """
        plan = self._schedule.plan
        stream = plan.stream_of(key.step)
        copy = stream_positions.get(stream)
        stream_positions[stream] = (key.epoch, plan.turn_of(key.step) + 1)
        return self._work.states.latest(key, copy)

    def _take(
        self,
        key: BatchKey,
        made: TaskResult,
        seconds: float,
        where: str,
        open_batch: Callable[[], Any],
        to_user: Callable[[], Callable[[], None] | None] = lambda: None,
    ) -> None:
        """A worker has answered, after so many seconds of work; `open_batch` gives its batch."""
        self._work.took(seconds, made.state)
        self._deaths.pop(key, None)
        if made.ended:
            with self._lock:
                self._schedule.end_stream(key)
            return
        outcome: Outcome
        if made.error is not None:
            outcome = self._work.failed(
                failures.error_of(made.error, key, self._work.places, where)
            )
        else:
            try:
                batch = open_batch()
                if self._gpu is not None:
                    batch = pin_memory(batch)  # type: ignore[no-untyped-call]
                outcome = Delivered(batch, to_user())
            except Exception as failed:
                where = "in the parent process, which could not take the batch in"
                record = failures.describe(failed)
                outcome = self._work.failed(
                    failures.error_of(record, key, self._work.places, where, failed)
                )
        self._finish(key, outcome)
        self._tell_what_is_due()  # before the next one is unpacked here
