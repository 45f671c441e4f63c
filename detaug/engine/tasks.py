"""What becomes of a task in the process that makes its batch: a worker of this machine, or an actor of a cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from detaug.engine.checking.making import CheckedBatch, make_to_check
from detaug.engine.executor import Job
from detaug.engine.failures import ErrorRecord, describe
from detaug.pipeline.loader_states import LoaderState, LoaderStates
from detaug.pipeline.plan import BatchKey
from detaug.pipeline.producer import Producer, StreamEnded
from detaug.purity.pristine import Pristine


class Made(NamedTuple):
    """What came of a task: an error, an end, or a batch; none of them: there is such a batch.

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


class Maker:
    """Makes the batches of one process, which is to `log` what the user should know."""

    def __init__(self, pristine: Pristine, job: Job, log: Callable[[str], None]) -> None:
        self.states = LoaderStates(pristine.source, job.branch.num_streams)
        self.producer = Producer(
            pristine, job.branch, log, job.guard, only=True, states=self.states
        )
        self._job = job
        self._made = 0

    def make(
        self, key: BatchKey, probe: bool, carry: Callable[[list[Any], CheckedBatch | None], Any]
    ) -> Made:
        """Do a task. `carry` has the batch travel: it is given a list with that, which nothing else holds, and what may be
        compared with another making of it."""
        self._job.settings.renew()
        self._made += not probe
        try:
            if probe:
                self.producer.make(*key, transform=False)
                return Made(state=self.producer.loader_state)
            batch, check = make_to_check(
                self.producer, key, self._made, self._job.check_every, self._job.noted
            )
            state, whole, batch = self.producer.loader_state, [batch], None
            return Made(carry(whole, check), state=state)
        except StreamEnded:
            return Made(ended=True)
        except SystemExit:
            raise
        except (
            BaseException
        ) as error:  # also those that are no Exception: a library's own way to cancel things
            return Made(error=describe(error))
