"""An exception on its way from a worker, whatever it is, to the error that a user reads."""

from __future__ import annotations

import os
import pickle
import signal
import traceback
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import cloudpickle

from detaug.errors import BatchError, WorkerDied, batch_error
from detaug.pipeline.plan import BatchKey
from detaug.pipeline.sources import DatasetSource, Source
from detaug.seeding.current import Current, SeedBranch
from detaug.system.limits import advice_for
from detaug.system.processes import signal_name

#: An exception that holds more (bytes), such as its batch, is sent without itself.
_LARGEST_EXCEPTION = 16_000

#: The folder of this package.
_OURS = str(Path(__file__).parents[1]) + os.sep
#: Of our own methods, those that say which transform it was.
_TELLING = ("draw", "change")
_CRASHES = ("SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE", "SIGABRT")
_MOST_INDICES = 32  # that a message names


@dataclass(frozen=True)
class ErrorRecord:
    """An exception that can be sent.

    Attributes:
        summary: its class and message.
        methods: the loader's and transforms' methods on the way to it, outermost first.
        traceback: as text.
        users_part: of the traceback, what comes from the user's first line on; without the summary.
        pickled: the exception, or what of it can be pickled (see `rebuild`); None: nothing.
        advice: the limit of the system that it speaks of, if it does, as met in the process that
            raised it.
        index: the item of a data set that was being fetched; None: none, or several at once.
    """

    summary: str
    methods: str
    traceback: str
    pickled: bytes | None
    advice: str = ""
    users_part: str = ""
    index: int | None = None


def describe(error: BaseException) -> ErrorRecord:
    """Take an exception down. Fails for none: not for those that cannot be printed, nor those that
    do not pickle.
    """
    try:
        summary = "".join(traceback.format_exception_only(type(error), error)).strip()
        text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        users_part = _users_part(error)
    except Exception as worse:  # a broken __str__
        summary = text = f"{type(error).__name__} (which cannot be printed: {type(worse).__name__})"
        users_part = ""
    return ErrorRecord(
        summary,
        _methods(error),
        text,
        _pickled(error),
        advice_for(error),
        users_part,
        _index(error),
    )


def _users_part(error: BaseException) -> str:
    where = error.__traceback__
    while (
        where is not None
        and where.tb_next is not None
        and where.tb_frame.f_code.co_filename.startswith(_OURS)
    ):
        where = where.tb_next
    text = "".join(traceback.format_exception(type(error), error, where))
    return text.removesuffix("".join(traceback.format_exception_only(error))).rstrip("\n")


def _index(error: BaseException) -> int | None:
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if frame.f_code is DatasetSource.fetch.__code__:
            index = frame.f_locals.get("index")
            return index if isinstance(index, int) else None
    return None


def _methods(error: BaseException) -> str:
    """``"Compose.__call__ > GammaTransform.__call__"``: which transform of a composition it was."""
    found: list[str] = []
    for frame, _ in traceback.walk_tb(error.__traceback__):
        owner = frame.f_locals.get("self")
        if owner is not None and (
            frame.f_code.co_name in _TELLING or not frame.f_code.co_filename.startswith(_OURS)
        ):
            found.append(f"{type(owner).__name__}.{frame.f_code.co_name}")
    return " > ".join(found)


def _pickled(error: BaseException) -> bytes | None:
    kind = type(error)
    for dumps, parts in (
        (pickle.dumps, lambda: error),
        (cloudpickle.dumps, lambda: (kind, error.args, error.__dict__)),
        (cloudpickle.dumps, lambda: (kind, (str(error),), {})),
    ):
        with suppress(Exception):
            data = bytes(dumps(parts()))
            pickle.loads(data)  # many classes pickle and cannot be rebuilt
            if len(data) <= _LARGEST_EXCEPTION:
                return data
    return None


def rebuild(record: ErrorRecord) -> BaseException | None:
    """The exception; one made of its class and what could be sent of it, where its own constructor
    cannot be used.
    """
    if record.pickled is None:
        return None
    with suppress(Exception):
        what = pickle.loads(record.pickled)
        if isinstance(what, BaseException):
            return what
        kind, args, attributes = what
        error: BaseException = kind.__new__(kind)
        error.args = args
        error.__dict__.update(attributes)
        return error
    return None


@dataclass(frozen=True)
class BatchLocator:
    """What messages say of where a batch is: its seed's path, and which items of a data set make
    it.
    """

    branch: SeedBranch
    source: Source

    def indices(self, key: BatchKey) -> tuple[int, ...]:
        """Of the data set's items; empty where there is none."""
        return (
            tuple(self.source.indices(Current(self.branch, *key)))
            if isinstance(self.source, DatasetSource)
            else ()
        )


def error_of(
    record: ErrorRecord,
    key: BatchKey,
    places: BatchLocator,
    where: str,
    original: BaseException | None = None,
) -> BatchError:
    """The error for an exception in a loader or transform; `original` where it was raised in this
    process.
    """
    if original is None:
        original = rebuild(record)
    raised_in = f"raised in {record.methods}\n" if record.methods else ""
    advice = f"\n{record.advice}" if record.advice else ""
    fetching = (
        f"fetching item {record.index} of the data set for"
        if record.index is not None
        else "making"
    )
    # A log shows the first line, a terminal ends with the last one: the message is both.
    users_part = f"\n\n{record.users_part}" if record.users_part else ""
    first_line = record.summary.partition("\n")[0]
    text = (
        f"{first_line}\n{raised_in}while {fetching} {describe_batch(key, places)} {where}\n"
        f"{_how_to_make_again(key, places)}{users_part}\n{record.summary}{advice}"
    )
    error = batch_error(original, text)
    error.original = original
    error.__suppress_context__ = True
    if original is not None and not isinstance(error, type(original)):
        error.__cause__ = (
            original  # else the error is what it was, and its text would be shown twice
        )
    error.worker_traceback = record.traceback
    _place(error, key, places)
    if record.index is not None:
        error.indices = (record.index,)
    return error


def died(
    key: BatchKey, places: BatchLocator, times: int, exitcode: int | None, peak: int, why: str
) -> WorkerDied:
    """The error for a batch that killed its workers; `exitcode`: of the last one, None on another
    machine; `why`: by whom it was killed, where that is known.
    """
    memory = f"; the last one's memory had peaked at {peak / 2**20:.0f} MiB" if peak else ""
    advice = f" It was {why.rstrip('.')}." if why else ""
    how = "" if exitcode is None else f", the last with {signal_name(exitcode)}"
    if exitcode == -signal.SIGKILL and not why:
        advice = (
            " SIGKILL that nobody sent is usually the kernel's out-of-memory killer (see dmesg)."
        )
    crashed = exitcode in [-getattr(signal, name) for name in _CRASHES]
    warning = (
        " (compiled code crashes here: this ends the process; python -X faulthandler shows where)"
        * crashed
    )
    error = WorkerDied(
        f"{describe_batch(key, places)} ended {times} worker{'s' if times > 1 else ''} in a row"
        f"{how}{memory}.{advice}\n"
        f"{_how_to_make_again(key, places)}{warning}"
    )
    error.exitcode = exitcode
    _place(error, key, places)
    return error


def _how_to_make_again(key: BatchKey, places: BatchLocator) -> str:
    return (
        f"seed path: {places.branch.line(*key)}\n"
        f"make it again in this process, under a debugger: aug.replay({key.epoch}, {key.step})"
    )


def describe_batch(key: BatchKey, places: BatchLocator) -> str:
    """``epoch 3, step 17 (stream 5, turn 1)``; of a data set ``epoch 3, step 17 (items 4, 0 of the
    data set)``.
    """
    turn, stream = divmod(key.step, places.branch.num_streams)
    detail = f"stream {stream}, turn {turn}"
    if indices := places.indices(key):
        more = f" and {len(indices) - _MOST_INDICES} more" if len(indices) > _MOST_INDICES else ""
        detail = f"items {', '.join(map(str, indices[:_MOST_INDICES]))}{more} of the data set"
    return f"epoch {key.epoch}, step {key.step} ({detail})"


def _place(error: BatchError, key: BatchKey, places: BatchLocator) -> None:
    error.epoch, error.step = key
    error.stream = key.step % places.branch.num_streams
    error.indices = places.indices(key)
