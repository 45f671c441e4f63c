"""From what went wrong in a worker to the error that a user reads."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from detaug.engine.error_record import ErrorRecord, rebuild
from detaug.errors import BatchError, WorkerDied, batch_error
from detaug.pipeline.plan import BatchKey
from detaug.processes.control import signal_name
from detaug.seeding.current import SeedBranch

_CRASHES = signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT
_MOST_INDICES = 32  # that a message names


@dataclass(frozen=True)
class Places:
    """What messages say of where a batch is.

    Attributes:
        branch: of the seed tree.
        indices: which items of a data set make a batch; None where there is no data set.
    """

    branch: SeedBranch
    indices: Callable[[BatchKey], Sequence[int]] | None = None


def error_of(
    record: ErrorRecord, key: BatchKey, places: Places, where: str, original: BaseException | None = None
) -> BatchError:
    """The error for an exception in a loader or transform; `original` where it was raised in this process."""
    if original is None:
        original = rebuild(record)
    error = batch_error(original, _message(record, key, places, where))
    error.original = original
    error.__suppress_context__ = True
    if original is not None and not isinstance(error, type(original)):
        error.__cause__ = original  # else the error is what it was, and its text would be shown twice
    _placed(error, key, places, record.traceback)
    if record.index is not None:
        error.indices = (record.index,)
    return error


def _message(record: ErrorRecord, key: BatchKey, places: Places, where: str) -> str:
    raised_in = f"raised in {record.methods}\n" if record.methods else ""
    advice = f"{record.advice}\n" if record.advice else ""
    fetching = f"fetching item {record.index} of the data set for" if record.index is not None else "making"
    users_part = f"\n{record.users_part}\n\n" if record.users_part else ""
    return (
        f"{record.summary}\n"
        f"{users_part}"
        f"{advice}"
        f"{raised_in}"
        f"while {fetching} {describe_batch(key, places)} {where}\n"
        f"seed path: {places.branch.line(*key)}\n"
        f"make it again in this process, under a debugger: aug.replay({key.epoch}, {key.step})"
    )


def died(key: BatchKey, places: Places, times: int, exitcode: int | None, peak: int, why: str) -> WorkerDied:
    """The error for a batch that killed its workers; `exitcode`: of the last one, None on another machine; `why`: by whom it was
    killed, where that is known."""
    memory = f"; the last one's memory had peaked at {peak / 2**20:.0f} MiB" if peak else ""
    advice = f" It was {why.rstrip('.')}." if why else ""
    how = "" if exitcode is None else f", the last with {signal_name(exitcode)}"
    if exitcode == -9 and not why:
        advice = " SIGKILL that nobody sent is usually the kernel's out-of-memory killer (see dmesg)."
    crashed = exitcode in [-each for each in _CRASHES]
    warning = (
        " (compiled code crashes here: this ends the process; python -X faulthandler shows where)" if crashed else ""
    )
    error = WorkerDied(
        f"{describe_batch(key, places)} ended {times} worker{'s' if times > 1 else ''} in a row"
        f"{how}{memory}.{advice}\n"
        f"seed path: {places.branch.line(*key)}\n"
        f"make it again in this process, under a debugger: aug.replay({key.epoch}, {key.step}){warning}"
    )
    error.exitcode = exitcode
    _placed(error, key, places, "")
    return error


def describe_batch(key: BatchKey, places: Places) -> str:
    """``epoch 3, step 17 (stream 5, turn 1)``; of a data set ``epoch 3, step 17 (items 4, 0 of the data set)``."""
    turn, stream = divmod(key.step, places.branch.num_streams)
    detail = f"stream {stream}, turn {turn}"
    if places.indices is not None:
        indices = list(places.indices(key))
        left_out = f" and {len(indices) - _MOST_INDICES} more" if len(indices) > _MOST_INDICES else ""
        detail = f"items {', '.join(map(str, indices[:_MOST_INDICES]))}{left_out} of the data set"
    return f"epoch {key.epoch}, step {key.step} ({detail})"


def _placed(error: BatchError, key: BatchKey, places: Places, worker_traceback: str) -> BatchError:
    error.epoch, error.step = key
    error.stream = key.step % places.branch.num_streams
    error.worker_traceback = worker_traceback
    error.indices = tuple(places.indices(key)) if places.indices is not None else ()
    return error
