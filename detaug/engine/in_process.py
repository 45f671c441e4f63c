"""Batches made in the calling process: for ``num_processes=0`` and for replay. Same bytes, and the caller's own random
state and thread counts are as they were afterwards."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from threadpoolctl import ThreadpoolController

from detaug.engine import failures
from detaug.engine.error_record import describe
from detaug.engine.failures import SeedPath
from detaug.engine.schedule import Delivered, EpochEnd, Exists, Failed, Outcome, Position, Schedule, Skipped, Task
from detaug.engine.transfer import pack, unpack
from detaug.engine.worker import Job
from detaug.global_rng import preserved_global_rngs
from detaug.pipeline import Pipeline, Producer, StreamEnded
from detaug.plan import BatchKey

logger = logging.getLogger("detaug")


class Replayer:
    """Makes any batch, in this process."""

    def __init__(self, pipeline: Pipeline, job: Job, seeds: SeedPath) -> None:
        self._pipeline = pipeline
        self._job = job
        self._seeds = seeds
        self._producer: Producer | None = None
        self._threads: ThreadpoolController | None = None

    def make(self, key: BatchKey, transform: bool = True) -> Any:
        """The batch. What a loader or transform raises comes as it is, so that a debugger stops where it was raised.

        Raises:
            StreamEnded: there is no such batch.
        """
        with preserved_global_rngs(), self._one_thread():
            if self._producer is None:
                copy, job = self._pipeline.copy, self._job
                self._producer = Producer(copy, job.entropy, job.num_streams, logger.warning, job.guard)
            batch = self._producer.make(key.epoch, key.step, transform)
        # A copy, as from a worker: the loader may hand out its own buffer and fill it again, the user may write to it.
        packed = pack(batch)
        return unpack(packed.pickled, [buffer.copy() for buffer in packed.buffers])

    @contextmanager
    def _one_thread(self) -> Iterator[None]:
        """As in a worker: sums depend on the number of threads."""
        if self._threads is None:
            self._threads = ThreadpoolController()
        fill = torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
        count = torch.get_num_threads()
        torch.set_num_threads(1)
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
        try:
            with self._threads.limit(limits=1):
                yield
        finally:
            torch.set_num_threads(count)
            torch.utils.deterministic.fill_uninitialized_memory = fill  # type: ignore[attr-defined]


class InProcess:
    """The engine without workers: each batch is made when it is asked for.

    Args:
        replayer: makes the batches.
        schedule: what is due.
        seeds: for messages.
        skip_errors: leave failing batches out.
    """

    def __init__(self, replayer: Replayer, schedule: Schedule, seeds: SeedPath, skip_errors: bool) -> None:
        self._replayer = replayer
        self._schedule = schedule
        self._seeds = seeds
        self._skip_errors = skip_errors

    def next(self) -> Any:
        """As `Coordinator.next`."""
        self._schedule.prune()
        while True:
            position, outcome = self._schedule.due()
            if isinstance(outcome, Delivered):
                # The position moves last of all: what Ctrl-C kept from being handed out is due still, and made again.
                then = self._schedule.after(position)
                self._schedule.outcomes.pop(BatchKey(position.epoch, position.step), None)
                self._schedule.position = then
                return outcome.batch
            if isinstance(outcome, EpochEnd):
                self._schedule.position = outcome.then
                raise StopIteration
            self._schedule.position = position  # past gaps and skipped steps
            if isinstance(outcome, Failed):
                raise outcome.error
            task = self._schedule.next_for(0)
            assert task is not None
            self._make(task)

    def move(self, position: Position) -> None:
        """As `Coordinator.move`."""
        self._schedule.position = position
        self._schedule.forget_all()

    def close(self) -> None:
        """There is nothing to end."""

    def worker_pids(self, ready: bool = False) -> list[int]:
        """There are no workers."""
        return []

    def _make(self, task: Task) -> None:
        try:
            batch = self._replayer.make(task.key, transform=not task.probe)
        except StreamEnded:
            self._schedule.end_stream(task.key)
            return
        except Exception as original:
            self._schedule.finish(task.key, self._failure(task, original))
            return
        self._schedule.finish(task.key, Exists() if task.probe else Delivered(batch))

    def _failure(self, task: Task, original: Exception) -> Outcome:
        error = failures.error_of(describe(original), task.key, self._seeds, "in this process", original)
        if not self._skip_errors:
            return Failed(error)
        logger.warning("skipped: %s", error)
        return Skipped()
