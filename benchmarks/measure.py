"""Fair timing on a noisy machine: fresh processes, interleaved rounds, medians of ratios taken within a round."""

from __future__ import annotations

import multiprocessing
import os
import statistics
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, TypeVar

T = TypeVar("T")

#: A measurement that takes longer than this has hung; its process is killed and the row reports it.
MEASUREMENT_TIMEOUT = 900.0  # seconds

_fork = multiprocessing.get_context("fork")


class MeasurementError(RuntimeError):
    """A measurement's process failed or hung; carries the traceback of that process."""


def in_fresh_process(function: Callable[..., T], *args: Any) -> T:
    """Call ``function(*args)`` in a forked child and return what it returns.

    The benchmark's own process never computes, starts no threads and imports no engine, so every measurement begins in
    the same state: no warm heap, no dead thread pool, no helper process left by an earlier one.

    Raises:
        MeasurementError: the child raised, died, or was still running after `MEASUREMENT_TIMEOUT`.
    """
    process, receiver = start_fresh_process(function, *args)
    result: T = result_of(process, receiver)
    return result


def silence() -> None:
    """In a fresh process: nothing of what a talkative peer prints is kept. An error reaches the caller with its traceback."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nowhere, stream)


def start_fresh_process(function: Callable[..., T], *args: Any) -> tuple[Any, Connection]:
    """As `in_fresh_process`, but return at once with the process and the connection its result will come through."""
    receiver, sender = _fork.Pipe(duplex=False)
    process = _fork.Process(target=_call, args=(sender, function, args))
    process.start()
    sender.close()
    return process, receiver


def result_of(process: Any, receiver: Connection) -> Any:
    """Wait for a process of `start_fresh_process` and return its result."""
    try:
        if not receiver.poll(MEASUREMENT_TIMEOUT):
            raise MeasurementError(f"a measurement was still running after {MEASUREMENT_TIMEOUT:.0f} s")
        failed, result = receiver.recv()
    except EOFError:
        process.join()
        raise MeasurementError(f"a measurement's process died with exit code {process.exitcode}") from None
    finally:
        receiver.close()
        process.join(10)  # what was measured is known by now; a peer that cannot shut down must not stop the rest
        if process.is_alive():
            process.kill()
            process.join()
    if failed:
        raise MeasurementError(f"a measurement failed:\n{result}")
    return result


@contextmanager
def one_core_busy() -> Iterator[None]:
    """A process that computes without end on the first of this process's cores."""
    process = _fork.Process(target=_compute, daemon=True)
    process.start()
    try:
        yield
    finally:
        process.kill()
        process.join()


def _compute() -> None:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    while True:
        pass


def _call(sender: Connection, function: Callable[..., T], args: tuple[Any, ...]) -> None:
    try:
        message: tuple[bool, Any] = (False, function(*args))
    except BaseException:
        message = (True, traceback.format_exc())
    sender.send(message)
    sender.close()


def interleaved(names: Sequence[str], rounds: int, measure: Callable[[str], T]) -> dict[str, list[T]]:
    """``{name: [measure(name) in each round]}``; each round measures every name, starting from another one each time,
    forwards and backwards by turns, so that a drift of the machine's speed falls on all of them alike."""
    results: dict[str, list[T]] = {name: [] for name in names}
    for number in range(rounds):
        start = number // 2 % len(names)
        order = [*names[start:], *names[:start]]
        for name in order if number % 2 == 0 else reversed(order):
            results[name].append(measure(name))
    return results


def seconds_per_batch(
    batches: Iterator[Any],
    warmup: int,
    count: int,
    consume: Callable[[Any], object] | None = None,
    warmup_seconds: float = 0.0,
) -> float:
    """Steady-state seconds per batch for a consumer that asks for the next batch at once.

    Args:
        batches: an endless iterator.
        warmup: batches that are taken before the clock starts (processes start, buffers fill, caches warm up).
        count: batches that are timed.
        consume: called with every batch, inside the timed part.
        warmup_seconds: how long, at least, from the first batch until the clock starts.
    """
    # No pause may come between warming up and timing: buffers would fill, and the batches in them be counted for free.
    taken, settled = 0, 0.0
    while taken < warmup or time.perf_counter() < settled:
        batch = next(batches)
        if not taken:
            settled = time.perf_counter() + warmup_seconds
        taken += 1
        if consume is not None:
            consume(batch)
    begin = time.perf_counter()
    for _ in range(count):
        batch = next(batches)
        if consume is not None:
            consume(batch)
    elapsed = time.perf_counter() - begin
    del batch
    return elapsed / count


@dataclass(frozen=True)
class Ratio:
    """The median over rounds of a quotient taken within each round, with its range."""

    median: float
    lowest: float
    highest: float

    @classmethod
    def of(cls, numerators: Sequence[float], denominators: Sequence[float]) -> Ratio:
        """One quotient for each round."""
        quotients = [a / b for a, b in zip(numerators, denominators, strict=True)]
        return cls(statistics.median(quotients), min(quotients), max(quotients))


def medians(results: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """The median of every list."""
    return {name: statistics.median(values) for name, values in results.items()}
