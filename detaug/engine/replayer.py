"""`Replayer`: makes any batch in the calling process, and leaves the process as it was."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from detaug.engine.worker_config import WorkerConfig
from detaug.objects.batch_pickling import pack, unpack
from detaug.pipeline.loader_states import LoaderState
from detaug.pipeline.plan import BatchKey
from detaug.pipeline.producer import Pipeline, Producer
from detaug.seeding.generators import preserved_global_rngs
from detaug.system.interrupts import program_handlers_recorded
from detaug.system.process_lock import ProcessLock

#: Held while a batch is made in this process. The global generators and settings belong to the
#: process, so all augmenters share one lock.
_making = ProcessLock()


def making_lock() -> threading.RLock:
    """Return the lock that is held while a batch is made in this process."""
    return _making.current


class Replayer:
    """A maker of any batch in this process.

    Args:
        pipeline: the source and the transform.
        config: seeds, process settings, and what is checked.
        makes_all: True: it makes all batches of a run in order, so states of loaders are taken, and
            state that transforms carry is looked for. False: it makes single batches.
    """

    def __init__(self, pipeline: Pipeline, config: WorkerConfig, makes_all: bool = False) -> None:
        self.config = config
        self._pipeline = pipeline
        self._makes_all = makes_all
        self._producer: Producer | None = None

    def make(self, key: BatchKey, state: LoaderState | None = None) -> Any:
        """Return a batch.

        An exception of the loader or the transform is raised as it is, so that a debugger stops
        where it was raised.

        Args:
            key: the batch.
            state: a state of its stream's loader shortly before the batch; None: none is needed.

        Raises:
            StreamEnded: there is no such batch.
        """
        with self.producer() as producer:
            return own_copy(producer.make(*key, state=state))

    def close(self) -> None:
        """Drop the copy of the pipeline, and with it the files that it has open."""
        self._producer = None

    @contextmanager
    def producer(self) -> Iterator[Producer]:
        """Yield the producer of batches, under a worker's settings.

        The random state, settings and thread counts of the caller are restored at the end.
        """
        pristine = self._pipeline.pristine
        config = self.config
        # The lock first: what the other contexts save and restore belongs to the whole process.
        with (
            making_lock(),
            program_handlers_recorded(),
            preserved_global_rngs(),
            pristine.shared.preserved(),
            config.settings.applied(self._pipeline.warn_once),
            self._pipeline.undeclared.making_here(),
        ):
            if self._producer is None:
                self._producer = Producer(
                    pristine,
                    config.branch,
                    self._pipeline.warn_once,
                    config.guard,
                    takes_states=self._makes_all,
                    checks_carried_state=self._makes_all and config.check_every > 0,
                    ignore=config.check_ignore,
                )
            yield self._producer


#: Why a second copy of the pipeline may fail in a process that has another one.
ONE_COPY = (
    "What can be opened only once in a process (an LMDB environment, a file that is locked) cannot"
    " be used by two copies, and with num_processes=0 this process has the one that makes the"
    " batches."
)


def own_copy(batch: Any) -> Any:
    """Return a copy of a batch, which shares no memory with it, as if from a worker.

    The loader may return its own buffer and refill it later, and the user may write to the batch.
    """
    packed = pack(batch)
    # `pack` leaves large buffers where they are; the pickle has copies of all small ones.
    return unpack(packed.pickled, [buffer.copy() for buffer in packed.buffers])
