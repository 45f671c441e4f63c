"""What runs on the nodes: an actor with a pristine copy of the pipeline, which makes the batches it is asked for."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from detaug.engine.checking import Again, is_checked, make_again
from detaug.engine.error_record import ErrorRecord, describe
from detaug.engine.executor import Job
from detaug.engine.warming import warm_up
from detaug.ledger.notes import note_of
from detaug.memory.blocks import Bytes
from detaug.memory.limits import private_memory
from detaug.pipeline.loader_states import LoaderState, LoaderStates
from detaug.pipeline.plan import BatchKey
from detaug.pipeline.producer import Pipeline, Producer, StreamEnded
from detaug.processes.surroundings import leave_autocast
from detaug.purity.reports import BatchReport, Explanation
from detaug.ray.nodes import NodeReport
from detaug.seeding.global_generators import preserved_global_rngs
from detaug.transport.importing import note_worker
from detaug.transport.payload import read_shipped
from detaug.transport.transfer import pack

#: (epoch, step, whether it is only asked for whether there is such a batch).
Order = tuple[int, int, bool]


@dataclass
class Report:
    """On a batch that will be made a second time.

    Attributes:
        number: the how-manieth of its actor it is, from 1.
        report: what the other making is compared with.
        state_before: of the stream's loader.
    """

    number: int
    report: BatchReport
    state_before: LoaderState | None


@dataclass
class Made:
    """The answer to an order. One of `error`, `ended` and the batch; neither for a batch that was only asked for.

    Attributes:
        pickled, buffers: the batch, as `detaug.transport.transfer.pack` takes it apart. Ray writes the buffers into its
            object store as they are.
        ended: there is no such batch.
        error: what its loader or transform raised.
        state: where the loader's copy stands behind it.
        report: where it is to be made a second time.
    """

    pickled: bytes = b""
    buffers: Sequence[Bytes] = ()
    ended: bool = False
    error: ErrorRecord | None = None
    state: LoaderState | None = None
    report: Report | None = None


@dataclass
class Answer:
    """To several orders.

    Attributes:
        made: one for each order.
        seconds: they took in all.
        logs: for the user.
        memory: private bytes of the process, where there is a limit that it exceeds.
    """

    made: list[Made]
    seconds: float
    logs: list[str]
    memory: int | None = None


class BatchMaker:
    """An actor. Its methods run one after the other, in one thread.

    Args:
        shipped: the pipeline and the job, see `detaug.transport.payload.ship`.
    """

    def __init__(self, shipped: Bytes) -> None:
        note_worker()  # first of all: thawing imports the user's modules, which may make batches themselves
        frozen, job = read_shipped(shipped)
        self._job: Job = job
        self._logs: list[str] = []
        job.settings.keep()
        leave_autocast()
        self._pristine = pristine = Pipeline.thaw(frozen)
        with preserved_global_rngs():
            warm_up(pristine.transform, pristine.source.loader)  # a node that has no compiled kernels makes them now
        self._states = LoaderStates(pristine.source, job.branch.num_streams)
        self._producer = Producer(pristine, job.branch, self._logs.append, job.guard, only=True, states=self._states)
        self._second: Producer | None = None
        self._written: list[Any] = []  # batches that Ray writes when `make` has returned; their memory may be theirs
        self._made = 0
        job.settings.keep_filters()

    def report(self) -> NodeReport:
        """Where it runs."""
        return NodeReport.here()

    def make(self, orders: Sequence[Order], states: Sequence[LoaderState]) -> Answer:
        """The batches, in this order.

        Args:
            orders: which.
            states: of loaders, ahead of their streams' first orders.
        """
        began = time.perf_counter()
        self._written.clear()
        for state in states:
            self._states.give(state)
        made = [self._one(*order, alone=len(orders) == 1) for order in orders]
        limit = self._job.max_memory
        memory = None if limit is None else private_memory()
        too_much = memory if limit is not None and memory is not None and memory > limit else None
        logs, self._logs[:] = list(self._logs), []
        return Answer(made, time.perf_counter() - began, logs, too_much)

    def make_again(
        self, epoch: int, step: int, stepped: bool, state: LoaderState | None, after: BatchKey | None
    ) -> tuple[Again, float]:
        """A batch of another actor, from a pristine copy, and the seconds it took. See `detaug.engine.checking`."""
        began = time.perf_counter()
        self._job.settings.renew()
        again = make_again(self._second_producer(), epoch, step, stepped, state, after, BaseException)
        return again, time.perf_counter() - began

    def explain(self, epoch: int, step: int, fresh: bool) -> Explanation:
        """How that batch comes to be in this process; `fresh`: as `make_again` makes it."""
        producer = self._producer
        if fresh:
            producer = self._second_producer()
            producer.start_over()
        return producer.explain(epoch, step)

    def _second_producer(self) -> Producer:
        if self._second is None:
            self._second = Producer(self._pristine, self._job.branch, self._logs.append, self._job.guard)
        return self._second

    def _one(self, epoch: int, step: int, probe: bool, alone: bool) -> Made:
        self._job.settings.renew()
        producer = self._producer
        self._made += not probe
        report = None
        began = time.perf_counter()
        try:
            if not probe and is_checked(self._made, self._job.check_every):
                batch, made = producer.make_reported(epoch, step)
                report = Report(self._made, made, producer.state_before)
            else:
                batch = producer.make(epoch, step, transform=not probe)
            state = producer.loader_state
            if probe:
                return Made(state=state)
            seconds, noted = time.perf_counter() - began, self._job.noted
            packed = pack(batch if noted is None else (batch, note_of(batch, seconds, noted)))
            self._written.append(batch)
            # The loader may fill its buffer again for the next of these orders, before Ray has written this one.
            buffers = packed.buffers if alone else [buffer.copy() for buffer in packed.buffers]
            return Made(packed.pickled, buffers, state=state, report=report)
        except StreamEnded:
            return Made(ended=True)
        except SystemExit:
            raise
        except BaseException as error:  # also those that are no Exception: a library's own way to cancel things
            return Made(error=describe(error))
