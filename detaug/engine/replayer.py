"""`Replayer`: makes any batch in the calling process, and leaves that as it was."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from detaug.engine.job import WorkerConfig
from detaug.objects.batch_pickling import pack, unpack
from detaug.pipeline.loader_states import LoaderState
from detaug.pipeline.plan import BatchKey
from detaug.pipeline.producer import Pipeline, Producer
from detaug.seeding.generators import preserved_global_rngs
from detaug.system.interrupts import programs_handlers_noted
from detaug.system.platform import at_fork

#: Held while a batch is made here. The global generators and settings are the process's, so it is
#: one lock for all augmenters.
_making = threading.RLock()


def _renew_lock() -> None:
    """Make another in a fork: the thread that held it may not be there to let it go."""
    global _making
    _making = threading.RLock()


at_fork(after_in_child=_renew_lock)


def making_lock() -> threading.RLock:
    """Return the lock that is held while a batch is made in this process."""
    return _making


class Replayer:
    """Makes any batch, in this process.

    Args:
        pipeline: which batches.
        job: seeds, process settings, and what is checked.
        makes_all: it makes all batches of a run in their order: states of loaders are taken, and
            the state that transforms carry is looked at.
    """

    def __init__(self, pipeline: Pipeline, job: WorkerConfig, makes_all: bool = False) -> None:
        self.job = job
        self._pipeline = pipeline
        self._makes_all = makes_all
        self._producer: Producer | None = None

    def make(self, key: BatchKey, state: LoaderState | None = None) -> Any:
        """Return the batch; `state`: of its stream's loader, from which it is near.

        What a loader or transform raises comes as it is, so that a debugger stops where it was
        raised.

        Raises:
            StreamEnded: There is no such batch.
        """
        with self.producer() as producer:
            return own_copy(producer.make(*key, state=state))

    def close(self) -> None:
        """Let go of the copy of the pipeline, and so of what it has open."""
        self._producer = None

    @contextmanager
    def producer(self) -> Iterator[Producer]:
        """Yield what makes them, as in a worker; the caller's own state is put back at the end."""
        pristine = self._pipeline.pristine
        job = self.job
        with (
            making_lock(),
            programs_handlers_noted(),
            preserved_global_rngs(),
            pristine.shared.preserved(),
            job.settings.applied(self._pipeline.warn_once),
            self._pipeline.undeclared.making_here(),
        ):
            if self._producer is None:
                self._producer = Producer(
                    pristine,
                    job.branch,
                    self._pipeline.warn_once,
                    job.guard,
                    takes_states=self._makes_all,
                    looks_at_state=self._makes_all and job.check_every > 0,
                    ignore=job.check_ignore,
                )
            yield self._producer


#: Why a second copy of the pipeline may fail in a process that has another one.
ONE_COPY = (
    "What can be opened only once in a process (an LMDB environment, a file that is locked) cannot "
    "be "
    "used by two copies, and with num_processes=0 this process has the one that makes the batches."
)


def own_copy(batch: Any) -> Any:
    """Return a copy, as from a worker.

    The loader may hand out its own buffer and fill it again, and the user may write to the batch.
    """
    packed = pack(batch)
    return unpack(packed.pickled, [buffer.copy() for buffer in packed.buffers])
