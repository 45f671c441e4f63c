"""Errors from workers: an exception becomes a record, and the record becomes the user's error."""

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

#: Bytes. A larger exception is sent without its attributes: it may hold its whole batch, which
#: would go through the socket.
_LARGEST_EXCEPTION = 16_000

#: The folder of this package.
_PACKAGE = str(Path(__file__).parents[1]) + os.sep
#: Methods of this package's own transforms that a message names: their class is the transform.
_NAMED_METHODS = ("draw", "change")
#: Signals by which compiled code crashes.
_CRASHES = ("SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE", "SIGABRT")
#: A message names at most this many items of a data set.
_MOST_INDICES = 32


@dataclass(frozen=True)
class ErrorRecord:
    """An exception that can be sent.

    Attributes:
        summary: its class and message.
        methods: the methods of the loader and the transforms in its traceback, outermost first.
        traceback: the traceback as text.
        pickled: the exception, or the parts of it that can be pickled (see `rebuild`); None: it
            cannot be pickled at all.
        advice: how to raise the limit of the system that it reports, as found in the process that
            raised it; empty: it reports none.
        users_part: the traceback from the user's first line on, without the summary.
        index: the item of a data set that was being fetched; None: no single item was.
    """

    summary: str
    methods: str
    traceback: str
    pickled: bytes | None
    advice: str = ""
    users_part: str = ""
    index: int | None = None


def describe(error: BaseException) -> ErrorRecord:
    """Return the record of an exception, even of one that cannot be printed or pickled."""
    try:
        summary = "".join(traceback.format_exception_only(type(error), error)).strip()
        text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        users_part = _users_part(error)
    except Exception as second_error:
        # Its __str__ raises.
        reason = type(second_error).__name__
        summary = f"{type(error).__name__} (which cannot be printed: {reason})"
        text = summary
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
    """Return the traceback from the user's first line on, without the exception's own text."""
    entry = error.__traceback__
    while (
        entry is not None
        and entry.tb_next is not None
        and entry.tb_frame.f_code.co_filename.startswith(_PACKAGE)
    ):
        entry = entry.tb_next
    text = "".join(traceback.format_exception(type(error), error, entry))
    # The exception's own text is the last line of the message (`error_of`), and may be long.
    return text.removesuffix("".join(traceback.format_exception_only(error))).rstrip("\n")


def _index(error: BaseException) -> int | None:
    """Return the item of a data set that was being fetched, or None."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if frame.f_code is DatasetSource.fetch.__code__:
            index = frame.f_locals.get("index")
            # A sampler may yield names instead of indices.
            if isinstance(index, int):
                return index
            return None
    return None


def _methods(error: BaseException) -> str:
    """Return the methods on the way to the exception, such as "Compose.__call__ > Blur.change"."""
    methods = []
    for frame, _ in traceback.walk_tb(error.__traceback__):
        owner = frame.f_locals.get("self")
        if owner is None:
            continue
        code = frame.f_code
        if code.co_name in _NAMED_METHODS or not code.co_filename.startswith(_PACKAGE):
            methods.append(f"{type(owner).__name__}.{code.co_name}")
    return " > ".join(methods)


def _pickled(error: BaseException) -> bytes | None:
    """Return as much of the exception as can be sent, for `rebuild`; None: nothing can."""
    for attempt in (_pickle_whole, _pickle_parts, _pickle_text):
        with suppress(Exception):
            data = attempt(error)
            # Many classes can be pickled but not unpickled.
            pickle.loads(data)
            if len(data) <= _LARGEST_EXCEPTION:
                return data
    return None


def _pickle_whole(error: BaseException) -> bytes:
    """Return the pickled exception."""
    return pickle.dumps(error)


def _pickle_parts(error: BaseException) -> bytes:
    """Return the parts of an exception whose constructor takes other arguments than ``args``."""
    return bytes(cloudpickle.dumps((type(error), error.args, error.__dict__)))


def _pickle_text(error: BaseException) -> bytes:
    """Return the class and text of an exception that holds something that cannot be pickled."""
    return bytes(cloudpickle.dumps((type(error), (str(error),), {})))


def rebuild(record: ErrorRecord) -> BaseException | None:
    """Return the exception of a record, or None if nothing of it could be sent.

    If it cannot be unpickled as a whole, it is created without its constructor, from its class and
    the parts that were sent.
    """
    if record.pickled is None:
        return None
    # The worker has unpickled it as a test, but this process may lack a module that it needs.
    with suppress(Exception):
        content = pickle.loads(record.pickled)
        if isinstance(content, BaseException):
            return content
        error_class, args, attributes = content
        error: BaseException = error_class.__new__(error_class)
        error.args = args
        error.__dict__.update(attributes)
        return error
    return None


@dataclass(frozen=True)
class BatchLocator:
    """The parts of messages that say which batch it is: seed path, and items of a data set."""

    branch: SeedBranch
    source: Source

    def indices(self, key: BatchKey) -> tuple[int, ...]:
        """Return the indices of the data set's items in a batch.

        Empty if there is no data set, or its sampler raises: that is the error to be reported.
        """
        if not isinstance(self.source, DatasetSource):
            return ()
        with suppress(Exception):
            return tuple(self.source.indices(Current(self.branch, *key)))
        return ()


def error_of(
    record: ErrorRecord,
    key: BatchKey,
    locator: BatchLocator,
    where: str,
    original: BaseException | None = None,
) -> BatchError:
    """Return the error for an exception in a loader or transform.

    Args:
        record: the exception.
        key: the batch that was being made.
        locator: locates the batch.
        where: the process, for the message, such as "in worker 3 (pid 4711)".
        original: the exception, if it was raised in this process.
    """
    if original is None:
        original = rebuild(record)
    # A log shows the first line, and a terminal ends with the last line: the exception is in both.
    first_line = record.summary.partition("\n")[0]
    text = f"{first_line}\n"
    if record.methods:
        text += f"raised in {record.methods}\n"
    activity = "making"
    if record.index is not None:
        activity = f"fetching item {record.index} of the data set for"
    text += f"while {activity} {describe_batch(key, locator)} {where}\n"
    text += _replay_advice(key, locator)
    if record.users_part:
        text += f"\n\n{record.users_part}"
    text += f"\n{record.summary}"
    if record.advice:
        text += f"\n{record.advice}"

    error = batch_error(original, text)
    error.original = original
    error.__suppress_context__ = True
    # An error of the original's own class contains its text, which would be shown twice.
    if original is not None and not isinstance(error, type(original)):
        error.__cause__ = original
    error.worker_traceback = record.traceback
    _set_location(error, key, locator)
    if record.index is not None:
        error.indices = (record.index,)
    return error


def worker_died(
    key: BatchKey, locator: BatchLocator, times: int, exitcode: int | None, peak: int, reason: str
) -> WorkerDied:
    """Return the error for a batch that ended its workers.

    Args:
        key: the batch.
        locator: locates the batch.
        times: number of workers in a row that it ended.
        exitcode: of the last worker; None: it ran on another machine.
        peak: the most memory that the last worker had, in bytes; 0: unknown.
        reason: why the last worker ended; empty: unknown.
    """
    workers = "worker" if times == 1 else "workers"
    text = f"{describe_batch(key, locator)} ended {times} {workers} in a row"
    if exitcode is not None:
        text += f", the last with {signal_name(exitcode)}"
    if peak:
        text += f"; the last one's memory had peaked at {peak / 2**20:.0f} MiB"
    text += "."
    if reason:
        text += f" It was {reason.rstrip('.')}."
    elif exitcode == -signal.SIGKILL:
        text += (
            " SIGKILL that nobody sent is usually the kernel's out-of-memory killer (see dmesg)."
        )
    text += f"\n{_replay_advice(key, locator)}"
    if _is_crash(exitcode):
        text += (
            " (compiled code crashes here: this ends the process; python -X faulthandler shows"
            " where)"
        )

    error = WorkerDied(text)
    error.exitcode = exitcode
    _set_location(error, key, locator)
    return error


def _is_crash(exitcode: int | None) -> bool:
    """Return whether a process with that exit code crashed in compiled code."""
    return exitcode in [-getattr(signal, name) for name in _CRASHES]


def _replay_advice(key: BatchKey, locator: BatchLocator) -> str:
    """Return the last lines of a message: the batch's seed path, and the call that replays it."""
    return (
        f"seed path: {locator.branch.line(*key)}\n"
        f"make it again in this process, under a debugger: aug.replay({key.epoch}, {key.step})"
    )


def describe_batch(key: BatchKey, locator: BatchLocator) -> str:
    """Return a text that names a batch.

    For example "epoch 3, step 17 (stream 5, turn 1)", or with a data set "epoch 3, step 17 (items
    4, 0 of the data set)".
    """
    turn, stream = divmod(key.step, locator.branch.num_streams)
    detail = f"stream {stream}, turn {turn}"
    indices = locator.indices(key)
    if indices:
        items = ", ".join(map(str, indices[:_MOST_INDICES]))
        num_more = len(indices) - _MOST_INDICES
        if num_more > 0:
            items += f" and {num_more} more"
        detail = f"items {items} of the data set"
    return f"epoch {key.epoch}, step {key.step} ({detail})"


def _set_location(error: BatchError, key: BatchKey, locator: BatchLocator) -> None:
    """Set the attributes of an error that say which batch it is about."""
    error.epoch, error.step = key
    error.stream = key.step % locator.branch.num_streams
    error.indices = locator.indices(key)
