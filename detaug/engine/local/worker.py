"""A worker process: makes the batches that the parent asks for, one after the other, and writes them into slots.

Another task may come while the first is being made, so that no time is lost between the two.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from detaug.engine.checking.making import Request, answer, make_to_check
from detaug.engine.executor import Job
from detaug.engine.failures import describe
from detaug.engine.local import messages
from detaug.memory.batch_memory import allocate_with
from detaug.memory.limits import private_memory
from detaug.pipeline.loader_states import LoaderStates
from detaug.pipeline.plan import BatchKey
from detaug.pipeline.producer import Pipeline, Producer, StreamEnded
from detaug.processes.control import (
    be_killed_first,
    die_with,
    leave_signals_to_the_parent,
    run_and_exit,
)
from detaug.purity.pristine import Pristine
from detaug.transport.channel import Channel, ChannelClosed
from detaug.transport.frozen import read_payload
from detaug.transport.slots import WorkerSlots
from detaug.transport.transfer import pack


def main(channel: int, payload: int, helper: int) -> None:
    """A fresh interpreter as worker, for "spawn"."""

    def live() -> None:
        die_with(helper)
        leave_signals_to_the_parent()
        work(Channel.from_descriptor(channel), lambda: thawed(payload))

    run_and_exit(live)


def thawed(payload: int) -> tuple[Pristine, Job]:
    """What was sent to a fresh interpreter."""
    frozen, job = read_payload(payload)
    return Pipeline.thaw(frozen), job


def work(channel: Channel, what: Callable[[], tuple[Pristine, Job]]) -> None:
    """The worker's life: until the parent's end of the channel is gone, or its memory exceeds the limit."""
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
    def __init__(self, channel: Channel, pristine: Pristine, job: Job) -> None:
        self._channel = channel
        self._job = job
        self._states = LoaderStates(pristine.source, job.branch.num_streams)
        self._producer = Producer(pristine, job.branch, self._log, job.guard, only=True, states=self._states)
        self._slots = WorkerSlots()
        self._tasks: deque[messages.Make | Request] = deque()
        self._made = 0

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
            made, descriptor = self._make(task.epoch, task.step, task.probe)
            self._channel.send(made, descriptor)
            if descriptor is not None:
                os.close(descriptor)
            if self._job.max_memory is not None and (memory := private_memory()) > self._job.max_memory:
                self._channel.send(messages.Retiring(memory))
                return

    def _log(self, text: str) -> None:
        self._channel.send(messages.Log(text))

    def _take_messages(self) -> None:
        """Take in what the parent has sent, waiting for it where there is nothing to do."""
        for message, _ in self._channel.receive_ready() if self._tasks else [self._channel.receive()]:
            self._tasks.append(message)
            if isinstance(message, messages.Make):
                self._producer.worker = message.place, self._job.num_workers
                self._slots.give_back(message.given_back)
                self._slots.drop(message.dropped)
                if message.state is not None:
                    self._states.give(message.state)

    def _make(self, epoch: int, step: int, probe: bool) -> tuple[messages.Made, int | None]:
        """The answer to a task, and the descriptor of its slot where that is a new one."""
        self._job.settings.renew()
        self._made += not probe
        try:
            if not probe:
                return self._batch(epoch, step)
            self._producer.make(epoch, step, transform=False)
            return messages.Made(state=self._producer.loader_state), None
        except StreamEnded:
            return messages.Made(ended=True), None
        except SystemExit:
            raise
        except BaseException as error:  # also those that are no Exception: a library's own way to cancel things
            return messages.Made(error=describe(error)), None
        finally:
            self._slots.abandon()  # what was not written

    def _batch(self, epoch: int, step: int) -> tuple[messages.Made, int | None]:
        key, job = BatchKey(epoch, step), self._job
        batch, check = make_to_check(self._producer, key, self._made, job.check_every, job.noted)
        # Ahead of the batch: once the user has it, the epoch's end waits for checks that are known of.
        if check is not None:
            self._channel.send(check)
        state, packed = self._producer.loader_state, pack(batch)
        whole, batch = [batch], None  # a buffer may be memory that an object of the batch frees: an ITK image's
        contents, descriptor = self._slots.write(packed, whole)
        return messages.Made(contents, state=state), descriptor

    def _answer_check(self, request: Request) -> None:
        allocate_with(None)  # it does not travel, and a new slot costs more than the batch
        began, used = time.perf_counter(), time.process_time()
        answered = answer(self._producer, request, BaseException)
        seconds = max(time.perf_counter() - began, time.process_time() - used)
        self._channel.send(messages.Checked(answered, seconds))
        allocate_with(self._slots.take)
