"""Tasks in the process that makes batches: a worker of this machine, or an actor of a cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from detaug.engine.errors_from_workers import ErrorRecord, describe
from detaug.engine.recheck.requests import (
    RecheckCandidate,
    Request,
    Response,
    SecondEpoch,
    handle_request,
    make_to_check,
)
from detaug.engine.worker_config import WorkerConfig
from detaug.pipeline.copying.pipeline_snapshot import PipelineSnapshot
from detaug.pipeline.loader_states import LoaderState
from detaug.pipeline.plan import BatchKey
from detaug.pipeline.producer import Log, Producer, StreamEnded
from detaug.pipeline.undeclared import remarks_on_variables


class TaskResult(NamedTuple):
    """The result of a task: an error, the end of a stream, or a batch.

    Attributes:
        contents: the batch, in the form in which it is sent.
        ended: True: there is no such batch because its stream has ended. False: there is one.
        error: the exception of the loader or the transform; None: there was none.
        state: the state of the stream's loader after the batch. It is taken for some batches only.
    """

    contents: Any = None
    ended: bool = False
    error: ErrorRecord | None = None
    state: LoaderState | None = None


#: Packs a batch for transport. Its arguments are a one-element list with the batch, which it
#: empties, and the report that a second making is compared with, or None.
Send: TypeAlias = Callable[[list[Any], RecheckCandidate | None], Any]


class TaskRunner:
    """The part of a process that runs its tasks.

    Args:
        pristine: the pipeline as the user passed it.
        config: seeds, process settings and what is recorded of each batch.
        log: called with each message that the user should see, and its level.
    """

    def __init__(self, pristine: PipelineSnapshot, config: WorkerConfig, log: Log) -> None:
        self.producer = Producer(
            pristine,
            config.branch,
            log,
            config.guard,
            owns_pipeline=True,
            takes_states=True,
            checks_carried_state=config.check_every > 0,
            ignore=config.check_ignore,
        )
        self._config = config
        self._log = log
        self._num_batches = 0
        self._second_epoch = SecondEpoch()
        for text, level in remarks_on_variables(pristine, config.variables):
            log(text, level)

    def run(self, key: BatchKey, state: LoaderState | None, send: Send) -> TaskResult:
        """Make a batch and return the result; an exception of the pipeline is a result as well.

        Args:
            key: the batch.
            state: a state of its stream's loader shortly before the batch; None: none is needed.
            send: packs the batch for transport.
        """
        self._config.settings.renew()
        self._num_batches += 1
        try:
            return self._make_batch(key, state, send)
        except StreamEnded:
            return TaskResult(ended=True)
        except SystemExit:
            # The user's code ends this process; the parent sees the exit code.
            raise
        except BaseException as error:
            # Some libraries cancel by exceptions that are no subclass of Exception.
            return TaskResult(error=describe(error))
        finally:
            self._config.settings.put_back(self._log)

    def handle(self, request: Request) -> Response:
        """Handle a request of the run-time check, and return the response."""
        self._config.settings.renew()
        try:
            return handle_request(self.producer, request)
        finally:
            self._config.settings.put_back(self._log)

    def _make_batch(self, key: BatchKey, state: LoaderState | None, send: Send) -> TaskResult:
        """Make a batch, or raise what the pipeline raises."""
        batch, report = make_to_check(
            self.producer, key, state, self._num_batches, self._second_epoch, self._config
        )
        loader_state = self.producer.loader_state
        # `owner` holds the only reference from here on. Memory that is still viewed after `send`
        # has emptied it is treated as the loader's, and the batch is then copied.
        owner = [batch]
        del batch
        return TaskResult(send(owner, report), state=loader_state)
