"""A worker process: makes the batches that the parent asks for, one after the other, and writes
them into slots.

Another task may come while the first is being made, so that no time is lost between the two.
"""

from __future__ import annotations

import logging
import os
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from detaug.engine.batch_maker import TaskRunner
from detaug.engine.errors_from_workers import describe
from detaug.engine.job import WorkerConfig
from detaug.engine.local import messages
from detaug.engine.local.slots import SlotContents, WorkerSlots
from detaug.engine.recheck.requests import RecheckCandidate, Request, answer
from detaug.objects.batch_pickling import pack
from detaug.objects.frozen import read_payload
from detaug.pipeline.copying.pipeline_snapshot import PipelineSnapshot
from detaug.pipeline.plan import BatchKey
from detaug.pipeline.producer import Pipeline
from detaug.seeding.batch_memory import allocate_with
from detaug.system.channel import Channel, ChannelClosed
from detaug.system.limits import private_memory
from detaug.system.processes import (
    be_killed_first,
    die_with,
    leave_signals_to_the_parent,
    run_and_exit,
)


def main(channel: int, payload: int, helper: int) -> None:
    """A fresh interpreter as worker, for "spawn"."""

    def live() -> None:
        die_with(helper)
        leave_signals_to_the_parent()
        work(Channel.from_descriptor(channel), lambda: thawed(payload))

    run_and_exit(live)


def thawed(payload: int) -> tuple[PipelineSnapshot, WorkerConfig]:
    """What was sent to a fresh interpreter."""
    frozen, job = read_payload(payload)
    return Pipeline.thaw(frozen), job


def work(channel: Channel, what: Callable[[], tuple[PipelineSnapshot, WorkerConfig]]) -> None:
    """The worker's life: until the parent's end of the channel is gone, or its memory exceeds the
    limit.
    """
    try:
        pristine, job = what()
        job.settings.keep()
        be_killed_first()
        worker = _Worker(channel, pristine, job)
    except Exception as error:
        channel.send(messages.Broken(describe(error)))
        return
    with suppress(ChannelClosed):
        worker.run()


class _Worker:
    def __init__(self, channel: Channel, pristine: PipelineSnapshot, job: WorkerConfig) -> None:
        self._channel = channel
        self._job = job
        self._maker = TaskRunner(pristine, job, self._log)
        self._slots = WorkerSlots()
        self._descriptor: int | None = None  # of a new slot, which goes with its first batch
        self._tasks: deque[messages.Make | Request] = deque()

    def _log(self, text: str, level: int = logging.WARNING, /) -> None:
        self._channel.send(messages.Log(text, level))

    def run(self) -> None:
        """Until its memory exceeds the limit.

        Raises:
            ChannelClosed: the parent is gone.
        """
        allocate_with(self._slots.take)
        self._channel.send(messages.Ready(os.getpid()))
        while True:
            self._take_messages()
            task = self._tasks.popleft()
            if not isinstance(task, messages.Make):
                self._answer_check(task)
                continue
            made = self._maker.make(BatchKey(task.epoch, task.step), task.state, self._carry)
            self._slots.abandon()  # what was not written
            self._channel.send(made, self._descriptor)
            if self._descriptor is not None:
                os.close(self._descriptor)
                self._descriptor = None
            if (
                self._job.max_memory is not None
                and (memory := private_memory()) > self._job.max_memory
            ):
                self._channel.send(messages.Retiring(memory))
                return

    def _take_messages(self) -> None:
        """Take in what the parent has sent, waiting for it where there is nothing to do."""
        for message, _ in (
            self._channel.receive_ready() if self._tasks else [self._channel.receive()]
        ):
            self._tasks.append(message)
            if isinstance(message, messages.Make):
                self._maker.producer.worker = message.place, self._job.num_workers
                self._slots.give_back(message.given_back)
                self._slots.drop(message.dropped)

    def _carry(self, whole: list[Any], check: RecheckCandidate | None) -> SlotContents:
        # Ahead of the batch: once the user has it, the epoch's end waits for checks that are known
        # of.
        if check is not None:
            self._channel.send(check)
        # It empties the list: a buffer may be memory that an object of the batch frees, an ITK
        # image's.
        contents, self._descriptor = self._slots.write(pack(whole[0]), whole)
        return contents

    def _answer_check(self, request: Request) -> None:
        allocate_with(None)  # it does not travel, and a new slot costs more than the batch
        began, used = time.perf_counter(), time.process_time()
        answered = answer(self._maker.producer, request)
        seconds = max(time.perf_counter() - began, time.process_time() - used)
        self._channel.send(messages.Checked(answered, seconds))
        allocate_with(self._slots.take)
