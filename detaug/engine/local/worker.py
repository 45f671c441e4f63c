"""A worker process: makes the batches that the parent asks for, one after the other, and writes them into slots.

More tasks may come while the first is being made, so that no time is lost between them; they can be cancelled until they
are begun.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from detaug.engine.checking import is_checked, make_again
from detaug.engine.error_record import describe
from detaug.engine.executor import Job
from detaug.engine.local import messages
from detaug.ledger.notes import note_of
from detaug.memory.batch_memory import allocate_with
from detaug.memory.limits import private_memory
from detaug.pipeline.loader_states import LoaderState, LoaderStates
from detaug.pipeline.producer import Pipeline, Producer, StreamEnded
from detaug.processes.control import (
    be_killed_first,
    die_with,
    leave_signals_to_the_parent,
    run_and_exit,
)
from detaug.processes.surroundings import leave_autocast
from detaug.processes.whereabouts import OwnWhereabouts
from detaug.purity.pristine import Pristine
from detaug.purity.reports import BatchReport
from detaug.transport.channel import Channel, ChannelClosed
from detaug.transport.importing import note_worker
from detaug.transport.payload import read_payload
from detaug.transport.slots import WorkerSlots
from detaug.transport.transfer import pack

#: Batches up to this size (bytes) travel in the message itself.
_INLINE = 16_384


def main(channel: int, payload: int, helper: int) -> None:
    """A fresh interpreter as worker, for "spawn"."""

    def live() -> None:
        die_with(helper)
        leave_signals_to_the_parent()
        work_on_payload(Channel.from_descriptor(channel), payload)

    run_and_exit(live)


def work_on_payload(channel: Channel, payload: int) -> None:
    """Work on a pipeline that was sent as a payload."""
    note_worker()  # first of all: thawing imports the user's modules, which may make batches themselves
    try:
        frozen, job = read_payload(payload)
        pristine = Pipeline.thaw(frozen)
    except Exception as error:
        channel.send(messages.Broken(describe(error)))
        return
    work(channel, pristine, job)


def work_on_inherited(channel: Channel, pipeline: Pipeline, job: Job) -> None:
    """Work on a pipeline that was inherited by a fork."""
    note_worker()
    work(channel, pipeline.pristine, job, forked=True)


def work(channel: Channel, pristine: Pristine, job: Job, forked: bool = False) -> None:
    """The worker's life: until told to quit, or until the parent's end of the channel is gone.

    `forked`: it began as a fork that had nothing left to load.
    """
    job.settings.keep()
    leave_autocast()
    be_killed_first()

    def log(text: str) -> None:
        channel.send(messages.Log(text))

    try:
        states = LoaderStates(pristine.source, job.branch.num_streams)
        producer = Producer(pristine, job.branch, log, job.guard, only=True, states=states)
    except Exception as error:
        channel.send(messages.Broken(describe(error)))
        return
    slots = WorkerSlots(log)
    allocate_with(slots.take)
    whereabouts = OwnWhereabouts()
    made = 0

    def make(ticket: int, epoch: int, step: int, probe: bool = False) -> tuple[messages.Answer, int | None]:
        nonlocal made
        job.settings.renew()
        whereabouts.task[0] = ticket
        made += not probe
        reported = not probe and is_checked(made, job.check_every)
        report = partial(_report, channel, made) if reported else None
        return _answer(producer, slots, ticket, epoch, step, probe, report, job.noted)

    try:
        channel.send(messages.Ready(os.getpid()), whereabouts.descriptor)
        tasks: deque[messages.Order | messages.MakeAgain | messages.Explain] = deque()
        while True:
            for message, _ in _messages(channel, wait=not tasks):
                match messages.Make(*message) if type(message) is tuple else message:
                    case messages.Make(orders, given_back, dropped):
                        tasks.extend(orders)
                        slots.give_back(given_back)
                        slots.drop(dropped)
                    case messages.Cancel(ticket):
                        tasks = deque(task for task in tasks if type(task) is not tuple or task[0] != ticket)
                    case messages.MakeAgain() | messages.Explain():
                        tasks.append(message)
                    case messages.Restore(state):
                        states.give(state)
                    case messages.Quit():
                        return
            if tasks:
                task = tasks.popleft()
                if isinstance(task, (messages.MakeAgain, messages.Explain)):
                    allocate_with(None)  # it does not travel, and a new slot costs more than the batch
                    channel.send(_second_answer(producer, forked, task))
                    allocate_with(slots.take)
                    continue
                _send(channel, *make(*task))
                if job.max_memory is not None and (memory := private_memory()) > job.max_memory:
                    channel.send(messages.Retiring(memory))
                    return
    except ChannelClosed:
        return


def _send(channel: Channel, answer: messages.Answer, descriptor: int | None) -> None:
    if type(answer) is messages.InSlot and answer.state is None:
        channel.send((answer.ticket, *answer.parcel), descriptor)
    else:
        channel.send(answer, descriptor)
    if descriptor is not None:
        os.close(descriptor)


def _messages(channel: Channel, wait: bool) -> list[tuple[Any, int | None]]:
    return [channel.receive()] if wait else channel.receive_ready()


def _answer(
    producer: Producer,
    slots: WorkerSlots,
    ticket: int,
    epoch: int,
    step: int,
    probe: bool,
    report: Callable[[int, int, BatchReport, LoaderState | None], None] | None,
    noted: tuple[str, ...] | None,
) -> tuple[messages.Answer, int | None]:
    began = time.perf_counter()
    try:
        if report is None:
            batch = producer.make(epoch, step, transform=not probe)
        else:
            batch, made = producer.make_reported(epoch, step)
            report(epoch, step, made, producer.state_before)
        state = producer.loader_state
        if probe:
            return messages.Exists(ticket, state), None
        seconds = time.perf_counter() - began
        packed = pack(batch if noted is None else (batch, note_of(batch, seconds, noted)))
        whole, batch = [batch], None  # a buffer may be memory that an object of the batch frees: an ITK image's
        size = len(packed.pickled) + sum(buffer.nbytes for buffer in packed.buffers)
        if size <= _INLINE:
            buffers = [buffer.tobytes() for buffer in packed.buffers]
            packed.buffers.clear()
            whole.clear()
            return messages.Inline(ticket, packed.pickled, buffers, state), None
        parcel, descriptor = slots.write(packed, whole)
        return messages.InSlot(ticket, parcel, state), descriptor
    except StreamEnded:
        return messages.Ended(ticket), None
    except SystemExit:
        raise
    except BaseException as error:  # also those that are no Exception: a library's own way to cancel things
        return messages.Raised(ticket, describe(error)), None
    finally:
        slots.abandon()  # what was not written


def _report(
    channel: Channel, number: int, epoch: int, step: int, report: BatchReport, state_before: LoaderState | None
) -> None:
    channel.send(messages.Report(number, epoch, step, report, state_before))


def _second_answer(
    producer: Producer, forked: bool, task: messages.MakeAgain | messages.Explain
) -> messages.Checked | messages.Explained:
    """`forked`: for this check alone."""
    if isinstance(task, messages.Explain):
        return messages.Explained(producer.explain(task.epoch, task.step))
    began, used = time.perf_counter(), time.process_time()
    again = make_again(producer, *task, BaseException)
    seconds = 0.0 if forked else max(time.perf_counter() - began, time.process_time() - used)
    return messages.Checked(again, seconds)
