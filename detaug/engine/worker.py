"""A worker process: makes the batches it is told to make, one after the other, and writes them into slots.

Messages to it: ("make", ticket, epoch, step, probe, slots given back, slots dropped), ("cancel", ticket), ("quit",). A
second task may come while the first is being made, so that no time is lost between them; it can be cancelled until it
is begun.
Messages from it: ("ready", pid) with the descriptor of `whereabouts`, ("broken", record), ("log", text), ("retiring",
bytes), after which it makes nothing more, and for each task one of
("slot", ticket, parcel) with a descriptor if the slot is new, ("inline", ticket, pickle), ("exists", ticket),
("ended", ticket), ("error", ticket, record).
"""

from __future__ import annotations

import os
import sys
from collections import deque
from dataclasses import dataclass
from typing import Any

import torch
from threadpoolctl import threadpool_limits

from detaug.engine.channel import Channel, ChannelClosed
from detaug.engine.error_record import describe
from detaug.engine.limits import private_memory
from detaug.engine.payload import read_payload
from detaug.engine.processes import (
    be_killed_first,
    die_with,
    keep_freed_memory,
    leave_signals_to_the_parent,
    run_and_exit,
)
from detaug.engine.slots import WorkerSlots
from detaug.engine.transfer import pack
from detaug.engine.whereabouts import offer_whereabouts
from detaug.pipeline import Pipeline, Producer, StreamEnded

#: Batches up to this size (bytes) travel in the message itself.
_INLINE = 16_384


@dataclass(frozen=True)
class Job:
    """What a worker has to know.

    Attributes:
        entropy: the four words of the seed branch.
        num_streams: logical workers.
        torch_dtype: torch's default dtype in the parent, which fresh interpreters do not inherit.
        guard: report generators created without a seed.
        max_memory: a worker that has more bytes to itself after a batch retires; None: never.
    """

    entropy: tuple[int, ...]
    num_streams: int
    torch_dtype: torch.dtype
    guard: bool = False
    max_memory: int | None = None


def main(channel: int, payload: int, zygote: int) -> None:
    """A fresh interpreter as worker, for "spawn"."""

    def live() -> None:
        die_with(zygote)
        leave_signals_to_the_parent()
        work_on_payload(Channel.from_descriptor(channel), payload)

    run_and_exit(live)


def work_on_payload(channel: Channel, payload: int) -> None:
    """Work on a pipeline that was sent as a payload."""
    try:
        frozen, job = read_payload(payload)
        os.close(payload)
    except Exception as error:
        channel.send(("broken", describe(error)))
        return
    work(channel, frozen.thaw, job)


def work_on_inherited(channel: Channel, pipeline: Pipeline, job: Job) -> None:
    """Work on a pipeline that was inherited by a fork."""
    work(channel, pipeline.copy, job)


def work(channel: Channel, copy: Any, job: Job) -> None:
    """The worker's life: until told to quit, or until the parent's end of the channel is gone."""
    single_thread()
    keep_freed_memory()
    be_killed_first()
    torch.set_default_dtype(job.torch_dtype)

    def log(text: str) -> None:
        channel.send(("log", text))

    try:
        producer = Producer(copy, job.entropy, job.num_streams, log, job.guard)
    except Exception as error:
        channel.send(("broken", describe(error)))
        return
    slots = WorkerSlots()
    try:
        channel.send(("ready", os.getpid()), offer_whereabouts())
        tasks: deque[tuple[int, int, int, bool]] = deque()
        while True:
            for message, _ in channel.receive_ready() if tasks else [channel.receive()]:
                if message[0] == "quit":
                    return
                if message[0] == "cancel":
                    tasks = deque(task for task in tasks if task[0] != message[1])
                    continue
                _, *task, given_back, dropped = message
                tasks.append(tuple(task))
                slots.give_back(given_back)
                slots.drop(dropped)
            if tasks:
                answer, descriptor = _answer(producer, slots, *tasks.popleft())
                channel.send(answer, descriptor)
                if descriptor is not None:
                    os.close(descriptor)
                if job.max_memory is not None and (memory := private_memory()) > job.max_memory:
                    channel.send(("retiring", memory))
                    return
    except ChannelClosed:
        return


def _answer(
    producer: Producer, slots: WorkerSlots, ticket: int, epoch: int, step: int, probe: bool
) -> tuple[tuple[Any, ...], int | None]:
    try:
        batch = producer.make(epoch, step, transform=not probe)
        if probe:
            return ("exists", ticket), None
        packed = pack(batch)
        del batch
        size = len(packed.pickled) + sum(buffer.nbytes for buffer in packed.buffers)
        if size <= _INLINE:
            return ("inline", ticket, packed.pickled, [buffer.tobytes() for buffer in packed.buffers]), None
        parcel, descriptor = slots.write(packed)
        return ("slot", ticket, parcel), descriptor
    except StreamEnded:
        return ("ended", ticket), None
    except SystemExit:
        raise
    except BaseException as error:  # also those that are no Exception: a library's own way to cancel things
        return ("error", ticket, describe(error)), None


def single_thread() -> None:
    """One thread for torch, BLAS and OpenMP: the workers are the parallelism, and sums depend on the thread count."""
    numba = sys.modules.get("numba")
    if numba is not None:
        # first of all: it starts its thread pool, and tells OpenMP, which torch uses as well, to have that many threads
        numba.set_num_threads(1)
    torch.set_num_threads(1)
    threadpool_limits(1)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
