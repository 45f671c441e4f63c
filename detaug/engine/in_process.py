"""Batches made in the calling process, for ``num_processes=0``, with the bytes of any worker's.

The random state, settings and thread counts of the caller are restored after each batch.
"""

from __future__ import annotations

import threading
import time
import weakref
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from detaug.engine import errors_from_workers as failures
from detaug.engine.errors_from_workers import ErrorRecord
from detaug.engine.executor import EngineContext
from detaug.engine.kept_draws import KeptDraws
from detaug.engine.outcomes import Delivered, EpochEnd, Failed, Position, SkipLog
from detaug.engine.recheck.hash_seed import HashOrder
from detaug.engine.recheck.rechecker import Recheck
from detaug.engine.recheck.requests import (
    RecheckCandidate,
    RecheckResponse,
    Request,
    SecondEpoch,
    handle_request,
    make_to_check,
)
from detaug.engine.replayer import ONE_COPY, Replayer, making_lock, own_copy
from detaug.errors import BatchError
from detaug.pipeline.loader_states import LoaderState
from detaug.pipeline.plan import BatchKey
from detaug.pipeline.producer import StreamEnded
from detaug.system.interrupts import is_interrupt, program_handlers_recorded


@dataclass(frozen=True)
class InThisProcess:
    """``executor=InThisProcess()``: this process makes each batch when it is asked for.

    ``num_processes=0`` does the same.
    """

    requires_pickling = False

    def num_workers(self, num_processes: int) -> int:
        """Return 0. Implements `Executor.num_workers`."""
        if num_processes:
            raise ValueError(
                "executor=InThisProcess() makes every batch in this process, so"
                f" num_processes={num_processes} has no effect: pass num_processes=0, or leave"
                " executor out"
            )
        return 0

    def start(self, context: EngineContext) -> InProcess:
        """Return an engine. Implements `Executor.start`."""
        return InProcess(context)


class InProcess:
    """The engine without workers: each batch is made when it is asked for. Implements `Engine`."""

    prefetches = False

    def __init__(self, context: EngineContext) -> None:
        self._context = context
        self._schedule = context.schedule
        self._num_batches = 0
        self._second_epoch = SecondEpoch()
        self.warn_once = context.pipeline.warn_once
        self._replayer = Replayer(context.pipeline, context.worker_config, makes_all=True)
        # Makes second copies of batches. It has made no batches except those of checks and replays.
        self._check_replayer = context.replayer
        # A proxy, because a reference cycle would keep the engine alive until the garbage collector
        # runs. Without a cycle, the files that its copy of the pipeline has open are closed as soon
        # as nobody uses the engine, and another copy can open them.
        transport = weakref.proxy(self)
        hash_order = HashOrder(context.pipeline, context.worker_config, context.recheck_policy)
        self._recheck = Recheck(context.recheck_policy, transport, hash_order)
        self._skip_log = SkipLog()
        self._kept_draws = KeptDraws(context.pipeline, context.replayer)

    def wait(self) -> Any:
        """Make and return the due batch. Implements `Engine.wait`."""
        thread_id = threading.get_ident()
        # Several of the user's threads may call it.
        with making_lock():
            outcome = self._take(thread_id)
        if isinstance(outcome, Delivered):
            return outcome.batch
        self._schedule.on_the_way.pop(thread_id, None)
        raise StopIteration

    def _take(self, thread_id: int) -> Delivered | EpochEnd:
        """Take the due outcome, after making it if it is a batch."""
        while True:
            result = self._schedule.take(thread_id)
            for skipped in result.skipped:
                self._skip_log.warn(skipped)
            outcome = result.outcome
            if isinstance(outcome, (Delivered, EpochEnd)):
                return outcome
            if isinstance(outcome, Failed):
                raise outcome.error.with_traceback(None)
            key = self._schedule.next_for()
            assert key is not None
            self._make(key)

    def hand_over(self) -> Any:
        """Return the batch, which is due no longer. Implements `Engine.hand_over`."""
        return self._schedule.on_the_way.pop(threading.get_ident()).outcome.batch  # type: ignore[union-attr]

    def put_back(self) -> None:
        """Leave the batch due. Implements `Engine.put_back`."""
        with making_lock():
            self._schedule.put_back(threading.get_ident())

    def move(self, position: Position) -> None:
        """Continue at another position. Implements `Engine.move`."""
        with making_lock():
            if position != self._schedule.position:
                self._schedule.position = position
                self._schedule.forget_all()
            self._schedule.forget_failures()

    def close(self) -> None:
        """Drop the copy of the pipeline. Implements `Engine.close`."""
        self._recheck.close()
        self._replayer.close()

    def _make(self, key: BatchKey) -> None:
        """Make a batch and record its outcome."""
        start = time.perf_counter()
        with program_handlers_recorded():
            try:
                batch, candidate, state = self._make_batch(key)
            except StreamEnded:
                self._schedule.end_stream(key)
                return
            except BaseException as original:
                if is_interrupt(original):
                    # The position has not moved, so the batch is still due.
                    raise
                self._schedule.finish(key, self._context.failed(self._error_of(key, original)))
                return
        self._num_batches += 1
        self._context.record_task(time.perf_counter() - start, state)
        if self._kept_draws.is_due:
            self._check_kept_draws(key)
        self._context.recheck_policy.user_is_in(key.epoch)
        if candidate is not None:
            self._recheck.on_candidate(candidate)
        # At least once: an interpreter with another hash seed may be due, or have responded, while
        # nothing is pending.
        self._recheck.advance()
        while self._recheck.is_pending:
            self._recheck.advance()
        # After the checks: if one raises, the batch is still due.
        self._schedule.finish(key, Delivered(batch))

    def _error_of(self, key: BatchKey, original: BaseException) -> BatchError:
        record = failures.describe(original)
        return failures.error_of(record, key, self._context.locator, "in this process", original)

    def _make_batch(self, key: BatchKey) -> tuple[Any, RecheckCandidate | None, LoaderState | None]:
        """Return the batch, the report for a check, and the loader's state after the batch."""
        state = self._context.states.latest(key)
        nth_batch = self._num_batches + 1
        config = self._context.worker_config
        with self._replayer.producer() as producer:
            watching: AbstractContextManager[None] = nullcontext()
            if config.check_every:
                watching = self._kept_draws.watching(producer, nth_batch)
            with watching:
                batch, candidate = make_to_check(
                    producer, key, state, nth_batch, self._second_epoch, config
                )
            copy = own_copy(batch)
            return copy, candidate, producer.loader_state

    def _check_kept_draws(self, key: BatchKey) -> None:
        """Make the batch again, and warn if it has drawn a number that a variable keeps."""
        start = time.perf_counter()
        remark = self._kept_draws.remark(key, self._context.states.loaded(key))
        self._context.recheck_policy.add_check_time(time.perf_counter() - start)
        if remark:
            self.warn_once(remark)

    # --- the run-time check. Implements `RecheckTransport`: each request is handled at once.

    def fail(self, error: BaseException) -> None:
        """Raise the error, in the user's thread."""
        raise error

    def send_request(self, request: Request, worker_id: int, *, to_checker: bool) -> bool:
        """Handle a request of the recheck, and pass the response on."""
        # State in classes and modules exists once per process, and keeps changing: a copy of the
        # pipeline in this process cannot be without it.
        keeps_loader = self._context.recheck_policy.takes_kept_copies
        replayer = self._replayer
        responder: int | None = worker_id
        if to_checker:
            replayer = self._check_replayer
            responder = None
        start = time.perf_counter()
        with replayer.producer() as producer:
            response = handle_request(producer, request, keeps_loader)
        if isinstance(response, RecheckResponse) and isinstance(response.report, ErrorRecord):
            # Here this is no mismatch: another process might be able to make the batch.
            self._stop_checking(response.report)
            return False
        self._recheck.on_response(response, time.perf_counter() - start, responder)
        return True

    def _stop_checking(self, record: ErrorRecord) -> None:
        """Make no more checks, because a second copy of the pipeline raises in this process."""
        self._context.recheck_policy.stop()
        self._recheck.cancel_check()
        self.warn_once(
            "batches are not checked, because in this process a second copy of the pipeline raises"
            f" {record.summary.rstrip('.')}. {ONE_COPY} Pass num_processes=1 to check batches, or"
            " check=False to silence this warning"
        )
