"""Batches made to be checked, and made again: what runs in the processes that make them."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any, NamedTuple

from detaug.ledger.lines import note_of
from detaug.pipeline.loader_states import CannotRestore, LoaderState
from detaug.pipeline.plan import BatchKey
from detaug.pipeline.producer import Producer
from detaug.purity.reports import BatchReport, Explanation


def is_checked(number: int, every: int) -> bool:
    """Whether a worker's `number`-th batch (from 1) is reported on: the first, second, fourth, eighth ..., and then one in
    `every` (0: none)."""
    if not every:
        return False
    return number & (number - 1) == 0 if number < every else number % every == 0


class CheckedBatch(NamedTuple):
    """A batch that is to be made again."""

    key: BatchKey
    report: BatchReport
    number: int  # of the batch among its worker's, from 1
    worker: int = 0  # by its engine's number; 0 in the calling process
    state: LoaderState | None = None  # of its stream's loader before it, if that is known
    after: BatchKey | None = None  # the process that makes it again makes this one before it

    @property
    def is_informative(self) -> bool:
        """Whether what is carried from batch to batch can show in it."""
        return self.number > 1 or self.after is not None


class MakeAgain(NamedTuple):
    """Make that batch from a pristine copy (where `stepped`, after that other batch), and from that state of its loader."""

    key: BatchKey
    stepped: bool
    state: LoaderState | None = None
    after: BatchKey | None = None


class Explain(NamedTuple):
    """Say how that batch comes to be in this process; `fresh`: from a pristine copy."""

    key: BatchKey
    fresh: bool


class Again(NamedTuple):
    """What came of making a batch again."""

    report: (
        BatchReport | str | None
    )  # by a copy stepped forward from the start, or what it raised; None: that was left out
    restored: (
        dict[str, str] | None
    )  # fingerprints of the loader's part, by a copy that was restored from a state
    refused: str = ""  # why it could not be restored


Request = MakeAgain | Explain
Answer = Again | Explanation


def make_to_check(
    producer: Producer, key: BatchKey, number: int, every: int, noted: tuple[str, ...] | None
) -> tuple[Any, CheckedBatch | None]:
    """A process's `number`-th batch, as a pair with its note where `noted` is not None, and what another making of it is to be
    compared with, where it is reported on."""
    check, began = None, time.perf_counter()
    if is_checked(number, every):
        batch, report = producer.make_reported(*key)
        check = CheckedBatch(key, report, number, state=producer.state_before)
    else:
        batch = producer.make(*key)
    seconds = time.perf_counter() - began
    return (batch if noted is None else (batch, note_of(batch, seconds, noted))), check


def answer(producer: Producer, request: Request, caught: type[BaseException] = Exception) -> Answer:
    """What the run-time check has asked for. What is `caught` is part of the answer."""
    if isinstance(request, Explain):
        if request.fresh:
            producer.start_over()
        return producer.explain(*request.key)
    report: BatchReport | str | None = None
    restored = None
    if request.stepped:
        producer.start_over()
        if request.after is not None:
            with suppress(caught):
                producer.make(*request.after)
        try:
            report = producer.make_reported(*request.key)[1]
        except caught as error:
            report = _text_of(error)
    if request.state is not None:
        try:
            restored = producer.make_restored(*request.key, request.state)
        except CannotRestore as error:
            return Again(report, None, str(error)[:1000])
        except caught as error:
            restored = {"": _text_of(error)}
    return Again(report, restored)


def _text_of(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:1000]
