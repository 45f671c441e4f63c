"""What runs on the nodes: an actor with a pristine copy of the pipeline, which makes the batches it is asked for."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from detaug.engine.checking.making import Answer, CheckedBatch, Explain, Request, answer, make_to_check
from detaug.engine.executor import Job
from detaug.engine.failures import ErrorRecord, describe
from detaug.engine.warming import warm_up
from detaug.memory.blocks import Bytes
from detaug.pipeline.loader_states import LoaderState, LoaderStates
from detaug.pipeline.plan import BatchKey
from detaug.pipeline.producer import Pipeline, Producer, StreamEnded
from detaug.purity.bulk import MOST_BYTES
from detaug.ray.nodes import NodeReport
from detaug.seeding.generators import preserved_global_rngs
from detaug.transport.frozen import Frozen, read_payload, write_payload
from detaug.transport.transfer import pack, unpack

#: Buffers from this size (bytes) on are used where they lie.
_MAPPED = 65_536


@dataclass
class Made:
    """What came of making a batch: one of `error`, `ended` and the batch, or none for a batch that was only asked for.

    Attributes:
        pickled, buffers: the batch, as `pack` takes it apart. Ray writes the buffers into its object store as they are.
        ended: there is no such batch.
        state: where the loader's copy stands behind it.
        check: where it may be made a second time.
    """

    pickled: bytes = b""
    buffers: Sequence[Bytes] = ()
    ended: bool = False
    error: ErrorRecord | None = None
    state: LoaderState | None = None
    check: CheckedBatch | None = None
    seconds: float = 0.0
    logs: Sequence[str] = ()

    def batch(self) -> Any:
        """It put together, where its buffers lie."""
        return unpack(self.pickled, map(_writable, self.buffers))


def _writable(buffer: Bytes) -> Bytes:
    """The same bytes, to be written to. Ray maps its store for writing and marks arrays read-only, for others may read them;
    nobody else reads an answer."""
    if buffer.nbytes < _MAPPED:
        return buffer.copy()
    room = (ctypes.c_ubyte * buffer.nbytes).from_address(buffer.ctypes.data)
    room.owner = buffer  # type: ignore[attr-defined]  # which keeps the memory
    writable: Bytes = np.frombuffer(room, np.uint8)  # type: ignore[call-overload]
    return writable


class BatchMaker:
    """An actor, with an index from 0 as `place`. Its methods run one after the other, in one thread. Arrays of the pipeline that
    is `shipped` lie in the store, where others read them as well."""

    def __init__(self, shipped: tuple[Frozen, Job], place: int) -> None:
        frozen, job = shipped
        if frozen.nbytes <= MOST_BYTES:  # larger arrays stay where they are, read-only
            frozen, job = read_payload(write_payload(frozen, job))
        self._job: Job = job
        self._logs: list[str] = []
        job.settings.keep()
        self._pristine = pristine = Pipeline.thaw(frozen)
        with preserved_global_rngs():
            warm_up(pristine.transform, pristine.source.loader)  # a node that has no compiled kernels makes them now
        self._states = LoaderStates(pristine.source, job.branch.num_streams)
        self._producer = Producer(pristine, job.branch, self._logs.append, job.guard, only=True, states=self._states)
        self._producer.worker = place, job.num_workers
        self._second: Producer | None = None
        self._written: Any = None  # a batch that Ray writes when `make` has returned: its objects may own the memory
        self._made = 0

    def report(self) -> NodeReport:
        """Where it runs."""
        return NodeReport.here()

    def make(self, epoch: int, step: int, probe: bool, state: LoaderState | None) -> Made:
        """A batch, or with `probe` only whether there is one. `state`: the loader's, ahead of its stream's first batch."""
        began = time.perf_counter()
        self._written = None
        if state is not None:
            self._states.give(state)
        made = self._made_of(epoch, step, probe)
        made.logs, self._logs[:] = tuple(self._logs), []
        made.seconds = time.perf_counter() - began
        return made

    def answer(self, request: Request) -> tuple[Answer, float]:
        """What the run-time check asks for, and the seconds it took; mostly from a pristine copy."""
        began = time.perf_counter()
        self._job.settings.renew()
        producer = self._producer
        if not isinstance(request, Explain) or request.fresh:
            if self._second is None:
                self._second = Producer(self._pristine, self._job.branch, self._logs.append, self._job.guard)
            producer = self._second
        return answer(producer, request, BaseException), time.perf_counter() - began

    def _made_of(self, epoch: int, step: int, probe: bool) -> Made:
        self._job.settings.renew()
        producer = self._producer
        self._made += not probe
        try:
            if probe:
                producer.make(epoch, step, transform=False)
                return Made(state=producer.loader_state)
            key, job = BatchKey(epoch, step), self._job
            self._written, check = make_to_check(producer, key, self._made, job.check_every, job.noted)
            packed = pack(self._written)
            return Made(packed.pickled, packed.buffers, state=producer.loader_state, check=check)
        except StreamEnded:
            return Made(ended=True)
        except SystemExit:
            raise
        except BaseException as error:  # also those that are no Exception: a library's own way to cancel things
            return Made(error=describe(error))
