"""What becomes of a task in the process that makes its batch: a worker of this machine, or an actor
of a cluster.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from detaug.engine.errors_from_workers import ErrorRecord, describe
from detaug.engine.job import WorkerConfig
from detaug.engine.recheck.requests import RecheckCandidate, make_to_check
from detaug.pipeline.copying.pipeline_snapshot import PipelineSnapshot
from detaug.pipeline.loader_states import LoaderState
from detaug.pipeline.plan import BatchKey
from detaug.pipeline.producer import Log, Producer, StreamEnded
from detaug.pipeline.undeclared import remarks_on_variables


class TaskResult(NamedTuple):
    """The result of a task: an error, an end, or a batch.

    Attributes:
        contents: the batch, as it travels.
        ended: there is no such batch, since its stream has ended before.
        error: what the loader or the transform has raised.
        state: of the stream's loader afterwards, now and then.
    """

    contents: Any = None
    ended: bool = False
    error: ErrorRecord | None = None
    state: LoaderState | None = None


class TaskRunner:
    """Makes the batches of one process.

    Args:
        pristine: The pipeline as the user passed it.
        job: Seeds, process settings and what is recorded of each batch.
        log: Called with each message that the user should see.
    """

    def __init__(self, pristine: PipelineSnapshot, job: WorkerConfig, log: Log) -> None:
        self.producer = Producer(
            pristine,
            job.branch,
            log,
            job.guard,
            only=True,
            takes_states=True,
            looks_at_state=job.check_every > 0,
            ignore=job.check_ignore,
        )
        self._job = job
        self._log = log
        self._num_batches = 0
        for text, level in remarks_on_variables(pristine, job.variables):
            log(text, level)

    def make(
        self,
        key: BatchKey,
        state: LoaderState | None,
        carry: Callable[[list[Any], RecheckCandidate | None], Any],
    ) -> TaskResult:
        """Make a batch and return the result; an exception of the pipeline's is part of that.

        Args:
            key: The batch.
            state: Of its stream's loader, from which the batch is near.
            carry: Packs a batch for transport. It is given a one-element list with the batch, which
                it empties, and the report that a second making is compared with, or None.
        """
        self._job.settings.renew()
        self._num_batches += 1
        try:
            return self._make_batch(key, state, carry)
        except StreamEnded:
            return TaskResult(ended=True)
        except SystemExit:
            raise
        except BaseException as error:
            # Libraries have their own ways to cancel, which are no Exception.
            return TaskResult(error=describe(error))
        finally:
            self._job.settings.put_back(self._log)

    def _make_batch(
        self,
        key: BatchKey,
        state: LoaderState | None,
        carry: Callable[[list[Any], RecheckCandidate | None], Any],
    ) -> TaskResult:
        job = self._job
        batch, report = make_to_check(
            self.producer, key, state, self._num_batches, job.check_every, job.noted
        )
        loader_state = self.producer.loader_state
        # `owner` holds the only reference from here on. Memory that is still viewed after `carry`
        # has emptied it is taken for the loader's, and the batch is then copied.
        owner = [batch]
        del batch
        return TaskResult(carry(owner, report), state=loader_state)
