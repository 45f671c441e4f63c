"""Batches made in the calling process: for ``num_processes=0`` and for replay. Same bytes, and the
caller's own random state, settings and thread counts are as they were afterwards.
"""

from __future__ import annotations

import time
import weakref
from dataclasses import dataclass
from typing import Any

from detaug.engine import errors_from_workers as failures
from detaug.engine.errors_from_workers import ErrorRecord
from detaug.engine.executor import EngineContext
from detaug.engine.outcomes import (
    Delivered,
    EpochEnd,
    Failed,
    Position,
    SkipLog,
)
from detaug.engine.recheck.hash_seed import HashOrder
from detaug.engine.recheck.rechecker import Recheck
from detaug.engine.recheck.requests import (
    RecheckCandidate,
    RecheckResponse,
    Request,
    answer,
    make_to_check,
)
from detaug.engine.replayer import ONE_COPY, Replayer, making_lock, own_copy
from detaug.errors import BatchError
from detaug.pipeline.loader_states import LoaderState
from detaug.pipeline.plan import BatchKey
from detaug.pipeline.producer import StreamEnded
from detaug.system.interrupts import is_interrupt, programs_handlers_noted


@dataclass(frozen=True)
class InThisProcess:
    """``executor=InThisProcess()``: every batch is made in this process when it is asked for, as by
    ``num_processes=0``.
    """

    travels = False

    def num_workers(self, num_processes: int) -> int:
        """See `detaug.engine.executor.Executor`; so with the following."""
        if num_processes:
            raise ValueError(
                "executor=InThisProcess() makes every batch in this process, so "
                f"num_processes={num_processes} has no "
                "effect: pass num_processes=0, or leave executor out"
            )
        return 0

    def start(self, work: EngineContext) -> InProcess:
        return InProcess(work)


class InProcess:
    """The engine without workers: each batch is made when it is asked for. See
    `detaug.engine.executor.Engine`.
    """

    prefetches = False

    def __init__(self, work: EngineContext) -> None:
        self._work = work
        self._schedule = work.schedule
        self._made = 0
        self.warn_once = work.pipeline.warn_once
        self._replayer = Replayer(work.pipeline, work.job, makes_all=True)
        self._second = work.replayer
        # A proxy, for the engine has it: once nobody uses the engine, what its copy of the pipeline
        # has open is closed at once, and another copy may open it.
        self._checking = Recheck(
            work.checks, weakref.proxy(self), HashOrder(work.pipeline, work.job, work.checks)
        )
        self._skip_log = SkipLog()

    def next(self) -> Any:
        with making_lock():  # several threads may ask
            while True:
                taken = self._schedule.take()
                for skipped in taken.passed:
                    self._skip_log.say(skipped)
                outcome = taken.outcome
                if isinstance(outcome, Delivered):
                    return outcome.batch
                if isinstance(outcome, EpochEnd):
                    raise StopIteration
                if isinstance(outcome, Failed):
                    raise outcome.error.with_traceback(None)
                key = self._schedule.next_for()
                assert key is not None
                self._make(key)

    def put_back(self, batch: Any) -> None:
        with making_lock():
            assert self._schedule.taken is not None
            self._schedule.put_back(self._schedule.taken, Delivered(batch))

    def move(self, position: Position) -> None:
        with making_lock():
            if position != self._schedule.position:
                self._schedule.position = position
                self._schedule.forget_all()
            self._schedule.forget_failures()

    def close(self) -> None:
        self._checking.close()
        self._replayer.close()

    def _make(self, key: BatchKey) -> None:
        began = time.perf_counter()
        with programs_handlers_noted():
            try:
                batch, check, state = self._batch(key)
            except StreamEnded:
                self._schedule.end_stream(key)
                return
            except BaseException as original:
                if is_interrupt(original):
                    raise  # the batch is still due
                self._schedule.finish(key, self._work.failed(self._error_of(key, original)))
                return
        self._made += 1
        self._work.took(time.perf_counter() - began, state)
        if check is not None:
            self._checking.reported(check)
        self._checking.advance()
        while self._checking.is_pending:
            self._checking.advance()
        self._schedule.finish(key, Delivered(batch))

    def _error_of(self, key: BatchKey, original: BaseException) -> BatchError:
        record = failures.describe(original)
        return failures.error_of(record, key, self._work.places, "in this process", original)

    def _batch(self, key: BatchKey) -> tuple[Any, RecheckCandidate | None, LoaderState | None]:
        job = self._work.job
        with self._replayer.producer() as producer:
            batch, check = make_to_check(
                producer,
                key,
                self._work.states.latest(key),
                self._made + 1,
                job.check_every,
                job.noted,
            )
            return own_copy(batch), check, producer.loader_state

    # --- the run-time check, see `detaug.engine.recheck.rechecker.Asks`: what is asked for is done
    # at once

    def fail(self, error: BaseException) -> None:
        """See there; so with the following."""
        raise error

    def ask(self, request: Request, worker: int, another: bool) -> bool:
        # By a copy that has made no other batches but those of checks and replays. State in classes
        # and modules exists once per process, and keeps changing.
        keeps_loader = self._work.checks.takes_kept_copies
        began = time.perf_counter()
        with (self._second if another else self._replayer).producer() as producer:
            answered = answer(producer, request, keeps_loader)
        if isinstance(answered, RecheckResponse) and isinstance(answered.report, ErrorRecord):
            # Another process would be able to make it, for all that is known.
            self._stop_checking(answered.report)
            return False
        self._checking.answered(answered, time.perf_counter() - began, None if another else worker)
        return True

    def _stop_checking(self, record: ErrorRecord) -> None:
        self._work.checks.stop()
        self._checking.give_up()
        self.warn_once(
            "batches are not made a second time to be compared: in this process a second copy of "
            "the "
            f"pipeline raises {record.summary.rstrip('.')}. {ONE_COPY} To have batches checked "
            "pass num_processes=1, "
            "to do without this warning check=False"
        )
