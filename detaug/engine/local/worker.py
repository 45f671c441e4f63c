"""The worker process, which makes the batches that the parent requests and writes them into slots.

A second task may arrive while the first is running, so that no time is lost between the two.
"""

from __future__ import annotations

import logging
import os
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from detaug.engine.batch_maker import TaskRunner
from detaug.engine.errors_from_workers import describe
from detaug.engine.local import messages
from detaug.engine.local.slots import SlotContents, WorkerSlots
from detaug.engine.recheck.requests import RecheckCandidate, Request
from detaug.engine.worker_config import WorkerConfig
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
    """Run a worker in a fresh interpreter, for the start method "spawn".

    Args:
        channel: descriptor of the worker's end of its channel.
        payload: descriptor from which the pipeline and the configuration are read.
        helper: the helper's pid.
    """

    def run() -> None:
        # Before anything that takes time: a worker must not outlive its helper.
        die_with(helper)
        leave_signals_to_the_parent()
        run_worker(Channel.from_descriptor(channel), partial(thawed, payload))

    run_and_exit(run)


def thawed(payload: int) -> tuple[PipelineSnapshot, WorkerConfig]:
    """Return the pipeline and the configuration that were sent to a fresh interpreter."""
    frozen, config = read_payload(payload)
    return Pipeline.thaw(frozen), config


def run_worker(channel: Channel, load: Callable[[], tuple[PipelineSnapshot, WorkerConfig]]) -> None:
    """Run a worker until the parent closes the channel, or the worker's memory exceeds its limit.

    Args:
        channel: the worker's end of its channel.
        load: returns the pipeline and the configuration; an exception is sent to the parent.
    """
    try:
        pristine, config = load()
        config.settings.keep()
        be_killed_first()
        worker = _Worker(channel, pristine, config)
    except Exception as error:
        channel.send(messages.Broken(describe(error)))
        return
    with suppress(ChannelClosed):
        worker.run()


class _Worker:
    """The loop of a worker process."""

    def __init__(self, channel: Channel, pristine: PipelineSnapshot, config: WorkerConfig) -> None:
        self._channel = channel
        self._config = config
        self._task_runner = TaskRunner(pristine, config, self._log)
        self._slots = WorkerSlots()
        #: Of a new slot; it is sent with the slot's first batch.
        self._descriptor: int | None = None
        self._tasks: deque[messages.Make | Request] = deque()

    def _log(self, text: str, level: int = logging.WARNING, /) -> None:
        self._channel.send(messages.Log(text, level))

    def run(self) -> None:
        """Run tasks until the worker's memory exceeds its limit.

        Raises:
            ChannelClosed: the parent is gone.
        """
        allocate_with(self._slots.allocate)
        self._channel.send(messages.Ready(os.getpid()))
        while True:
            self._take_messages()
            task = self._tasks.popleft()
            if not isinstance(task, messages.Make):
                self._handle_request(task)
                continue
            self._run_task(task)
            if self._config.max_memory is None:
                continue
            memory = private_memory()
            if memory > self._config.max_memory:
                self._channel.send(messages.Retiring(memory))
                return

    def _run_task(self, task: messages.Make) -> None:
        """Make a batch and send the result."""
        key = BatchKey(task.epoch, task.step)
        result = self._task_runner.run(key, task.state, self._send)
        # Of a batch that was not written.
        self._slots.discard()
        self._channel.send(result, self._descriptor)
        # The parent has a duplicate from now on, and closes it once the slot is mapped. A worker
        # needs none: a thousand slots would exhaust its descriptors.
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _take_messages(self) -> None:
        """Take in the messages that have arrived; wait for one if there is no task."""
        if self._tasks:
            received = self._channel.receive_ready()
        else:
            received = [self._channel.receive()]
        for message, _ in received:
            self._tasks.append(message)
            if isinstance(message, messages.Make):
                self._task_runner.producer.worker = (message.worker_index, self._config.num_workers)
                self._slots.release(message.released)
                self._slots.drop(message.dropped)

    def _send(self, owner: list[Any], candidate: RecheckCandidate | None) -> SlotContents:
        """Write a batch into a slot; see `detaug.engine.batch_maker.Send`."""
        # Before the batch: once the user has the batch, the end of the epoch waits for the checks
        # that the parent knows of.
        if candidate is not None:
            self._channel.send(candidate)
        # `owner` is emptied by `write`, not here: a buffer may be memory that an object of the
        # batch frees, such as an ITK image.
        contents, self._descriptor = self._slots.write(pack(owner[0]), owner)
        return contents

    def _handle_request(self, request: Request) -> None:
        """Handle a request of the run-time check and send the response."""
        # The batch is not sent, and a new slot would cost more than the batch.
        allocate_with(None)
        wall_start = time.perf_counter()
        cpu_start = time.process_time()
        response = self._task_runner.handle(request)
        # Whichever is more: threads of the pipeline's own use several cores, a disk none.
        seconds = max(time.perf_counter() - wall_start, time.process_time() - cpu_start)
        self._channel.send(messages.RecheckReply(response, seconds))
        allocate_with(self._slots.allocate)
