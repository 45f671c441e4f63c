"""What runs on the nodes: an actor with a pristine copy of the pipeline, which makes the batches it
is asked for.
"""

from __future__ import annotations

import ctypes
import logging
import time
from typing import Any, NamedTuple

import numpy as np

from detaug.augmenter.warm_up import warm_up
from detaug.engine.batch_maker import TaskResult, TaskRunner
from detaug.engine.job import WorkerConfig
from detaug.engine.recheck.requests import Answer, RecheckCandidate, Request, TraceRequest, answer
from detaug.objects.batch_pickling import Packed, pack, unpack
from detaug.objects.frozen import Frozen, read_payload, write_payload
from detaug.pipeline.copying.large_arrays import MOST_BYTES
from detaug.pipeline.loader_states import LoaderState
from detaug.pipeline.plan import BatchKey
from detaug.pipeline.producer import Pipeline, Producer
from detaug.ray.nodes import NodeReport
from detaug.seeding.generators import preserved_global_rngs
from detaug.system.shared_memory import Bytes

#: Buffers from this size (bytes) on are used where they lie.
_MAPPED = 65_536


class Reply(NamedTuple):
    """What an actor answers. Of `made` the contents are `Packed`: Ray writes the buffers into its
    object store as they are.
    """

    made: TaskResult
    check: RecheckCandidate | None  # where it may be made a second time
    seconds: float
    logs: tuple[tuple[str, int], ...]  # texts, and their levels

    def batch(self) -> Any:
        """It put together, where its buffers lie."""
        packed: Packed = self.made.contents
        return unpack(packed.pickled, map(_writable, packed.buffers))


def _writable(buffer: Bytes) -> Bytes:
    """The same bytes, to be written to. Ray maps its store for writing and marks arrays read-only,
    for others may read them; nobody else reads an answer.
    """
    if buffer.nbytes < _MAPPED:
        return buffer.copy()
    room = (ctypes.c_ubyte * buffer.nbytes).from_address(buffer.ctypes.data)
    room.owner = buffer  # type: ignore[attr-defined]  # which keeps the memory
    writable: Bytes = np.frombuffer(room, np.uint8)  # type: ignore[call-overload]
    return writable


class BatchMaker:
    """An actor, with an index from 0 as `place`. Its methods run one after the other, in one
    thread. Arrays of the pipeline that is `shipped` lie in the store, where others read them as
    well.
    """

    def __init__(self, shipped: tuple[Frozen, WorkerConfig], place: int) -> None:
        frozen, job = shipped
        if frozen.nbytes <= MOST_BYTES:  # larger arrays stay where they are, read-only
            frozen, job = read_payload(write_payload(frozen, job))
        self._job: WorkerConfig = job
        self._logs: list[tuple[str, int]] = []
        job.settings.keep()
        self._pristine = pristine = Pipeline.thaw(frozen)
        with preserved_global_rngs():
            warm_up(
                pristine.transform, pristine.source.loader
            )  # a node that has no compiled kernels makes them now
        self._maker = TaskRunner(pristine, job, self._log)
        self._maker.producer.worker = place, job.num_workers
        self._second: Producer | None = None
        self._written: Any = (
            None  # a batch that Ray writes when `make` has returned: its objects may own the memory
        )
        self._check: RecheckCandidate | None = None  # of the batch that was made last

    def report(self) -> NodeReport:
        """Where it runs."""
        return NodeReport.here()

    def make(self, epoch: int, step: int, state: LoaderState | None) -> Reply:
        """Make a batch. `state`: of its stream's loader, from which the batch is near."""
        began = time.perf_counter()
        self._written = self._check = None
        made = self._maker.make(BatchKey(epoch, step), state, self._carry)
        logs, self._logs[:] = tuple(self._logs), []
        return Reply(made, self._check, time.perf_counter() - began, logs)

    def answer(self, request: Request) -> tuple[Answer, float]:
        """What the run-time check asks for, and the seconds it took; mostly from a pristine copy."""
        began = time.perf_counter()
        self._job.settings.renew()
        producer = self._maker.producer
        if not isinstance(request, TraceRequest) or request.fresh:
            if self._second is None:
                self._second = Producer(
                    self._pristine, self._job.branch, self._log, self._job.guard
                )
            producer = self._second
        return answer(producer, request), time.perf_counter() - began

    def _log(self, text: str, level: int = logging.WARNING, /) -> None:
        self._logs.append((text, level))

    def _carry(self, whole: list[Any], check: RecheckCandidate | None) -> Packed:
        self._written, self._check = whole, check
        return pack(whole[0])
