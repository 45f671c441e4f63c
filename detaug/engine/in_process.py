"""Batches made in the calling process: for ``num_processes=0`` and for replay. Same bytes, and the caller's own random
state, settings and thread counts are as they were afterwards."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from detaug.engine import failures
from detaug.engine.checking.hash_order import HashOrder
from detaug.engine.checking.making import CheckedBatch, Request, answer, make_to_check
from detaug.engine.checking.second_making import Checking
from detaug.engine.executor import Job, Work
from detaug.engine.order.outcomes import (
    Delivered,
    EpochEnd,
    Failed,
    Position,
    SkipLog,
)
from detaug.pipeline.loader_states import LoaderState
from detaug.pipeline.plan import BatchKey
from detaug.pipeline.producer import Pipeline, Producer, StreamEnded
from detaug.seeding.generators import preserved_global_rngs
from detaug.system import at_fork
from detaug.transport.transfer import pack, unpack

#: Held while a batch is made here. The global generators and settings are the process's, so it is one lock for all augmenters.
_making = threading.RLock()


def _renew_lock() -> None:
    """In a fork. The thread that held it may not be there to let it go."""
    global _making
    _making = threading.RLock()


at_fork(after_in_child=_renew_lock)


class Replayer:
    """Makes any batch, in this process.

    Args:
        pipeline: which batches.
        job: seeds, process settings, and what is checked.
        makes_all: it makes all batches of a run in their order: states of loaders are taken, and
            the state that transforms carry is looked at.
    """

    def __init__(self, pipeline: Pipeline, job: Job, makes_all: bool = False) -> None:
        self._pipeline = pipeline
        self._job = job
        self._makes_all = makes_all
        self._producer: Producer | None = None

    def make(self, key: BatchKey, state: LoaderState | None = None) -> Any:
        """Return the batch; `state`: of its stream's loader, from which it is near.

        What a loader or transform raises comes as it is, so that a debugger stops where it was
        raised.

        Raises:
            StreamEnded: There is no such batch.
        """
        with self.producer() as producer:
            return _own_copy(producer.make(*key, state=state))

    @contextmanager
    def producer(self) -> Iterator[Producer]:
        """What makes them, as in a worker inside the block; the caller's own state is put back at its end."""
        pristine, job = self._pipeline.pristine, self._job
        with (
            _making,
            preserved_global_rngs(),
            pristine.shared.preserved(),
            job.settings.applied(),
        ):
            if self._producer is None:
                self._producer = Producer(
                    pristine,
                    job.branch,
                    self._pipeline.say_once,
                    job.guard,
                    takes_states=self._makes_all,
                    looks_at_state=self._makes_all and job.check_every > 0,
                    ignore=job.check_ignore,
                )
            yield self._producer


def _own_copy(batch: Any) -> Any:
    """As from a worker: the loader may hand out its own buffer and fill it again, the user may write to it."""
    packed = pack(batch)
    return unpack(packed.pickled, [buffer.copy() for buffer in packed.buffers])


@dataclass(frozen=True)
class InThisProcess:
    """``executor=InThisProcess()``: every batch is made in this process when it is asked for, as by ``num_processes=0``."""

    travels = False

    def num_workers(self, num_processes: int) -> int:
        """See `detaug.engine.executor.Executor`; so with the following."""
        if num_processes:
            raise ValueError(
                f"executor=InThisProcess() makes every batch in this process, so num_processes={num_processes} has no "
                "effect: pass num_processes=0, or leave executor out"
            )
        return 0

    def start(self, work: Work) -> InProcess:
        return InProcess(work)


class InProcess:
    """The engine without workers: each batch is made when it is asked for. See `detaug.engine.executor.Engine`."""

    prefetches = False

    def __init__(self, work: Work) -> None:
        self._work = work
        self._schedule = work.schedule
        self._made = 0
        self.say_once = work.pipeline.say_once
        self._replayer = Replayer(work.pipeline, work.job, makes_all=True)
        self._second = Replayer(work.pipeline, work.job)
        self._checking = Checking(work.checks, self, HashOrder(work))
        self._skip_log = SkipLog()

    def next(self) -> Any:
        with _making:  # several threads may ask
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
        with _making:
            assert self._schedule.taken is not None
            self._schedule.put_back(self._schedule.taken, Delivered(batch))

    def move(self, position: Position) -> None:
        with _making:
            if position != self._schedule.position:
                self._schedule.position = position
                self._schedule.forget_all()
            self._schedule.forget_failures()

    def close(self) -> None:
        self._checking.close()

    def _make(self, key: BatchKey) -> None:
        began = time.perf_counter()
        try:
            batch, check, state = self._batch(key)
        except StreamEnded:
            self._schedule.end_stream(key)
            return
        except Exception as original:
            record, places = failures.describe(original), self._work.places
            error = failures.error_of(record, key, places, "in this process", original)
            self._schedule.finish(key, self._work.failed(error))
            return
        self._made += 1
        self._work.took(time.perf_counter() - began, state)
        if check is not None:
            self._checking.reported(check)
        self._checking.go_on()
        while self._checking.under_way:
            self._checking.go_on()
        self._schedule.finish(key, Delivered(batch))

    def _batch(self, key: BatchKey) -> tuple[Any, CheckedBatch | None, LoaderState | None]:
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
            return _own_copy(batch), check, producer.loader_state

    # --- the run-time check, see `detaug.engine.checking.second_making.Asks`: what is asked for is done at once

    def fail(self, error: BaseException) -> None:
        """See there; so with the following."""
        raise error

    def ask(self, request: Request, worker: int, another: bool) -> bool:
        # From a pristine copy. State in classes and modules exists once per process, and keeps changing.
        began = time.perf_counter()
        with (self._second if another else self._replayer).producer() as producer:
            answered = answer(producer, request)
        self._checking.answered(answered, time.perf_counter() - began, None if another else worker)
        return True
