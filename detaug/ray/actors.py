"""The code that runs on the nodes: actors that make the batches which the driver requests."""

from __future__ import annotations

import ctypes
import logging
import time
from typing import Any, NamedTuple

import numpy as np

from detaug.augmenter.warm_up import warm_up
from detaug.engine.batch_maker import TaskResult, TaskRunner
from detaug.engine.recheck.requests import (
    RecheckCandidate,
    Request,
    Response,
    TraceRequest,
    handle_request,
)
from detaug.engine.worker_config import WorkerConfig
from detaug.objects.batch_pickling import Packed, pack, unpack
from detaug.objects.frozen import Frozen, read_payload, write_payload
from detaug.pipeline.copying.large_arrays import MOST_BYTES
from detaug.pipeline.loader_states import LoaderState
from detaug.pipeline.plan import BatchKey
from detaug.pipeline.producer import Pipeline, Producer
from detaug.ray.nodes import NodeReport
from detaug.seeding.generators import preserved_global_rngs
from detaug.system.shared_memory import Bytes

#: Bytes. Larger buffers are used in the object store, smaller ones are copied.
_MAPPED = 65_536


class Reply(NamedTuple):
    """An actor's reply to a task.

    Attributes:
        result: the result. Its contents are `Packed`: Ray writes the buffers into its object store
            without a copy of its own.
        candidate: the batch, if it may be made a second time, or None.
        seconds: how long the task took.
        logs: messages that the user should see, with their levels.
    """

    result: TaskResult
    candidate: RecheckCandidate | None
    seconds: float
    logs: tuple[tuple[str, int], ...]

    def batch(self) -> Any:
        """Return the batch, whose large arrays view the object store."""
        packed: Packed = self.result.contents
        return unpack(packed.pickled, map(_writable, packed.buffers))


def _writable(buffer: Bytes) -> Bytes:
    """Return the same bytes as a writable array.

    Ray maps its object store writable, but marks arrays as read-only because other processes may
    read them. No other process reads a reply.
    """
    if buffer.nbytes < _MAPPED:
        return buffer.copy()
    memory = (ctypes.c_ubyte * buffer.nbytes).from_address(buffer.ctypes.data)
    # The array below keeps `memory` alive, and this attribute the object in the store.
    memory.owner = buffer  # type: ignore[attr-defined]
    writable: Bytes = np.frombuffer(memory, np.uint8)  # type: ignore[call-overload]
    return writable


class BatchMaker:
    """An actor, with a pristine copy of the pipeline. A single thread runs its methods.

    Args:
        shipped: the pipeline, whose arrays are in the object store, where other actors read them as
            well; and the configuration.
        worker_index: the actor's index, from 0.
    """

    def __init__(self, shipped: tuple[Frozen, WorkerConfig], worker_index: int) -> None:
        frozen, config = shipped
        # Larger arrays stay in the object store, read-only.
        if frozen.nbytes <= MOST_BYTES:
            frozen, config = read_payload(write_payload(frozen, config))
        self._config: WorkerConfig = config
        self._logs: list[tuple[str, int]] = []
        config.settings.keep()
        self._pristine = Pipeline.thaw(frozen)
        # A node that has no compiled kernels compiles them now.
        with preserved_global_rngs():
            warm_up(self._pristine.transform, self._pristine.source.loader)
        self._task_runner = TaskRunner(self._pristine, config, self._log)
        self._task_runner.producer.worker = (worker_index, config.num_workers)
        self._check_producer: Producer | None = None
        #: The batch of the last reply, in a list. Ray writes its buffers after `make` has returned,
        #: and the batch's objects may own their memory.
        self._batch_owner: list[Any] | None = None
        self._candidate: RecheckCandidate | None = None

    def report(self) -> NodeReport:
        """Return the report on this process and its node."""
        return NodeReport.here()

    def make(self, epoch: int, step: int, state: LoaderState | None) -> Reply:
        """Make a batch.

        Args:
            epoch: the batch's epoch.
            step: the batch's step.
            state: a state of its stream's loader shortly before it; None: none is needed.
        """
        start = time.perf_counter()
        # Ray has written the previous batch by now, so its memory may be freed.
        self._batch_owner = None
        self._candidate = None
        result = self._task_runner.run(BatchKey(epoch, step), state, self._send)
        logs = tuple(self._logs)
        self._logs.clear()
        return Reply(result, self._candidate, time.perf_counter() - start, logs)

    def answer(self, request: Request) -> tuple[Response, float]:
        """Return the response to a request of the run-time check, and the seconds that it took."""
        start = time.perf_counter()
        self._config.settings.renew()
        response = handle_request(self._producer_for(request), request)
        return response, time.perf_counter() - start

    def _producer_for(self, request: Request) -> Producer:
        """Return the producer of this actor's batches for their trace, else one for checks."""
        if isinstance(request, TraceRequest) and not request.fresh:
            return self._task_runner.producer
        # A separate producer, which has not made the batches that it checks.
        if self._check_producer is None:
            config = self._config
            self._check_producer = Producer(self._pristine, config.branch, self._log, config.guard)
        return self._check_producer

    def _log(self, text: str, level: int = logging.WARNING, /) -> None:
        self._logs.append((text, level))

    def _send(self, owner: list[Any], candidate: RecheckCandidate | None) -> Packed:
        """Pack a batch; see `detaug.engine.batch_maker.Send`."""
        self._batch_owner = owner
        self._candidate = candidate
        return pack(owner[0])
