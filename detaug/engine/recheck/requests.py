"""Batches made to be checked, and made again: what runs in the processes that make them."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

from detaug.engine.errors_from_workers import ErrorRecord, describe
from detaug.ledger.lines import batch_record
from detaug.pipeline.batch_report import BatchReport, TraceResponse
from detaug.pipeline.loader_states import LoaderState
from detaug.pipeline.plan import BatchKey
from detaug.pipeline.producer import Producer
from detaug.system.interrupts import is_interrupt


def is_checked(number: int, every: int) -> bool:
    """Whether a worker's `number`-th batch (from 1) is reported on: the first, second, fourth,
    eighth ..., and then one in `every` (0: none).
    """
    if not every:
        return False
    return number & (number - 1) == 0 if number < every else number % every == 0


class RecheckCandidate(NamedTuple):
    """A batch that is to be made again."""

    key: BatchKey
    report: BatchReport
    number: int  # of the batch among its worker's, from 1
    worker: int = 0  # by its engine's number; 0 in the calling process
    #: The process that makes it again makes this one before it.
    after: BatchKey | None = None

    @property
    def is_informative(self) -> bool:
        """Whether what is carried from batch to batch can show in it."""
        return self.number > 1 or self.after is not None


class RecheckRequest(NamedTuple):
    """A request to make batches, in this order, from a pristine copy, and to report on the last.

    Attributes:
        batches: Each with the loader's state from which its stream resumed in this run; None: the
            stream began at its start.
    """

    batches: tuple[tuple[BatchKey, LoaderState | None], ...]


class TraceRequest(NamedTuple):
    """Say how that batch comes to be in this process; `fresh`: from a pristine copy."""

    key: BatchKey
    fresh: bool


class RecheckResponse(NamedTuple):
    """The report on a batch that was made again, or what was raised."""

    report: BatchReport | ErrorRecord


Request = RecheckRequest | TraceRequest
Answer = RecheckResponse | TraceResponse


def make_to_check(
    producer: Producer,
    key: BatchKey,
    state: LoaderState | None,
    number: int,
    every: int,
    noted: tuple[str, ...] | None,
) -> tuple[Any, RecheckCandidate | None]:
    """Make a process's `number`-th batch.

    Returns:
        The batch (a pair with its note where `noted` is not None), and the report that another
        making of it is compared with; None where it is not reported on.
    """
    check = None
    began = time.perf_counter()
    if is_checked(number, every):
        batch, report = producer.make_reported(*key, state)
        check = RecheckCandidate(key, report, number)
    else:
        batch = producer.make(*key, state=state)
    seconds = time.perf_counter() - began
    if noted is None:
        return batch, check
    return (batch, batch_record(batch, seconds, noted)), check


def answer(
    producer: Producer,
    request: Request,
    keeps_loader: bool = False,
) -> Answer:
    """Return what the run-time check has asked for; an error of the pipeline's is part of that.

    Args:
        producer: Makes the batches.
        request: What is asked for.
        keeps_loader: Batches are made by the stateless loader that made those of earlier requests.
            Each loader is otherwise a pristine one, which opens its files and stores again.
    """
    if isinstance(request, TraceRequest):
        if request.fresh:
            producer.start_over()
        return producer.explain(*request.key)
    if not keeps_loader:
        producer.start_over()
    *earlier, (key, state) = request.batches
    for earlier_key, earlier_state in earlier:
        try:
            producer.make(*earlier_key, state=earlier_state)
        except BaseException as error:
            if is_interrupt(error):
                raise
    try:
        return RecheckResponse(producer.make_reported(*key, state)[1])
    except BaseException as error:
        if is_interrupt(error):
            raise
        return RecheckResponse(describe(error))
