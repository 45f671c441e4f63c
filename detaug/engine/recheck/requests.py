"""Requests and reports of the run-time check, and what handles them where batches are made."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

from detaug.engine.errors_from_workers import ErrorRecord, describe
from detaug.engine.worker_config import WorkerConfig
from detaug.ledger.lines import batch_record
from detaug.pipeline.batch_report import BatchReport, TraceResponse
from detaug.pipeline.loader_states import LoaderState
from detaug.pipeline.plan import BatchKey
from detaug.pipeline.producer import Producer
from detaug.system.interrupts import is_interrupt


def is_checked(nth_batch: int, every: int) -> bool:
    """Return whether a report is made for a worker's batch, so that it can be checked.

    There is one for the first, second, fourth, eighth ... batch, and then for every `every`-th.

    Args:
        nth_batch: which of its worker's batches it is, from 1.
        every: the user's ``Check.every``; 0: there are no reports.
    """
    if not every:
        return False
    if nth_batch >= every:
        return nth_batch % every == 0
    # A power of two has one bit set.
    return nth_batch & (nth_batch - 1) == 0


class SecondEpoch:
    """The beginning of a process's second epoch: a report is made for that batch as well."""

    def __init__(self) -> None:
        self._first_epoch: int | None = None
        self._has_begun = False

    def begins_with(self, key: BatchKey) -> bool:
        """Return True for the first batch after the first epoch; a process calls it for each."""
        if self._first_epoch is None:
            self._first_epoch = key.epoch
        if self._has_begun or key.epoch <= self._first_epoch:
            return False
        self._has_begun = True
        return True


class RecheckCandidate(NamedTuple):
    """A batch that may be made a second time.

    Attributes:
        key: the batch.
        report: the report on its first making.
        nth_batch: which of its worker's batches it is, from 1.
        worker: the id of its worker in the engine; 0: the calling process.
        after: a batch that the second process makes before it; None: it makes none.
    """

    key: BatchKey
    report: BatchReport
    nth_batch: int
    worker: int = 0
    after: BatchKey | None = None

    @property
    def is_informative(self) -> bool:
        """True: the check can reveal state carried from batch to batch. False: it cannot."""
        return self.nth_batch > 1 or self.after is not None


class RecheckRequest(NamedTuple):
    """A request to make batches in this order, and to report on the last.

    Attributes:
        batches: batches, each with the loader's state from which its stream resumed in this run;
            None: the stream began at its start.
        fresh: True: they are made from a pristine copy. False: by the copy that makes this
            process's batches.
    """

    batches: tuple[tuple[BatchKey, LoaderState | None], ...]
    fresh: bool = True


class TraceRequest(NamedTuple):
    """A request for the output of each step of the pipeline that leads to a batch.

    Attributes:
        key: the batch.
        fresh: True: it is made from a pristine copy. False: by the copy that makes this process's
            batches.
    """

    key: BatchKey
    fresh: bool


class RecheckResponse(NamedTuple):
    """The report on a batch that was remade, or the exception that was raised instead."""

    report: BatchReport | ErrorRecord


Request = RecheckRequest | TraceRequest
Response = RecheckResponse | TraceResponse


def make_to_check(
    producer: Producer,
    key: BatchKey,
    state: LoaderState | None,
    nth_batch: int,
    second_epoch: SecondEpoch,
    config: WorkerConfig,
) -> tuple[Any, RecheckCandidate | None]:
    """Make a batch, with a report on it if it may be made a second time.

    Args:
        producer: makes the batch.
        key: the batch.
        state: a state of its stream's loader shortly before it; None: none is needed.
        nth_batch: which of this process's batches it is, from 1.
        second_epoch: this process's.
        config: says which batches are reported on, and whether there is a ledger.

    Returns:
        The batch, as a pair with its `detaug.ledger.lines.BatchRecord` if there is a ledger; and
        its candidate for a check, or None.
    """
    candidate = None
    start = time.perf_counter()
    begins_epoch = second_epoch.begins_with(key) and config.check_every > 0
    if begins_epoch or is_checked(nth_batch, config.check_every):
        batch, report = producer.make_reported(*key, state)
        candidate = RecheckCandidate(key, report, nth_batch)
    else:
        batch = producer.make(*key, state=state)
    seconds = time.perf_counter() - start
    if not config.keeps_ledger:
        return batch, candidate
    # Not the report's fingerprints: in those, an object that has no bytes counts by its class.
    record = batch_record(batch, seconds, config.check_ignore)
    return (batch, record), candidate


def handle_request(
    producer: Producer,
    request: Request,
    keeps_loader: bool = False,
) -> Response:
    """Return the response to a request; an exception of the pipeline is a response as well.

    Args:
        producer: makes the batches.
        request: the request.
        keeps_loader: True: a stateless loader that handled earlier requests is used again. False:
            the loader is a pristine copy, which opens its files and stores again.
    """
    if isinstance(request, TraceRequest):
        if request.fresh:
            producer.start_over()
        return producer.explain(*request.key)
    if request.fresh and not keeps_loader:
        producer.start_over()
    *earlier, (key, state) = request.batches
    for earlier_key, earlier_state in earlier:
        try:
            producer.make(*earlier_key, state=earlier_state)
        except BaseException as error:
            # Some libraries cancel by exceptions that are no subclass of Exception.
            if is_interrupt(error):
                raise
            # Only what it leaves behind in this process matters, not whether it could be made.
    try:
        return RecheckResponse(producer.make_reported(*key, state)[1])
    except BaseException as error:
        if is_interrupt(error):
            raise
        return RecheckResponse(describe(error))
