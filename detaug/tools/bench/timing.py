"""Measure time fairly on a noisy machine, for `detaug bench` and `python -m benchmarks` alike.

- `interleaved` repeats whole measurements, the systems in turn, each in a process of its own
  (`in_fresh_process`).
- `consume` takes batches from an endless iterator, as a training loop does.

Systems are compared by a `Ratio`: the median of quotients, each taken within one round.
"""

from __future__ import annotations

import multiprocessing
import os
import statistics
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, NamedTuple, TypeVar

import psutil

T = TypeVar("T")

#: A measurement that takes longer than this hangs: its process is killed, and the row reports it.
#: In seconds.
MEASUREMENT_TIMEOUT = 900.0

_fork = multiprocessing.get_context("fork")


class MeasurementError(RuntimeError):
    """A measurement's process failed or hung; the message has the traceback of that process."""


# --- whole measurements ---------------------------------------------------------------------------


def in_fresh_process(function: Callable[..., T], *args: Any) -> T:
    """Call ``function(*args)`` in a forked child and return what it returns.

    The process that calls this never computes and starts no threads. So every measurement begins in
    the same state: no warm heap, no dead thread pool, no helper process that an earlier one left.

    Raises:
        MeasurementError: the function raised, or its process died or hung.
    """
    # Forked rather than spawned, so that the user's pipeline need not be picklable.
    receiver, sender = _fork.Pipe(duplex=False)
    process = _fork.Process(target=_call, args=(sender, function, args))
    process.start()
    # Only the child holds its end now: its death ends the connection.
    sender.close()
    result: T = _result_of(process, receiver)
    return result


def _result_of(process: Any, receiver: Connection) -> Any:
    """Wait for the result of a process, and for the end of the process.

    Raises:
        MeasurementError: the process failed, died or hung.
    """
    try:
        # With a limit, because the user's pipeline may hang.
        if not receiver.poll(MEASUREMENT_TIMEOUT):
            raise MeasurementError(
                f"a measurement was still running after {MEASUREMENT_TIMEOUT:.0f} s"
            )
        failed, result = receiver.recv()
    except EOFError:
        process.join()
        raise MeasurementError(
            f"a measurement's process died with exit code {process.exitcode}"
        ) from None
    finally:
        receiver.close()
        # The result is known by now: a system that cannot shut down must not stop the others.
        process.join(10)
        if process.is_alive():
            process.kill()
            process.join()
    if failed:
        raise MeasurementError(f"a measurement failed:\n{result}")
    return result


def _call(sender: Connection, function: Callable[..., T], args: tuple[Any, ...]) -> None:
    """Send (False, the function's result), or (True, the traceback) if it raises."""
    try:
        message: tuple[bool, Any] = (False, function(*args))
    # SystemExit as well: otherwise the parent would see a process that died without a reason.
    except BaseException:
        message = (True, traceback.format_exc())
    sender.send(message)
    sender.close()


def interleaved(
    names: Sequence[str], rounds: int, measure: Callable[[str], T]
) -> dict[str, list[T]]:
    """Return ``{name: [measure(name) in each round]}``.

    Each round measures every name. Rounds start from another name each time, and go forwards and
    backwards by turns, so that a drift of the machine's speed affects all names alike.
    """
    results: dict[str, list[T]] = {name: [] for name in names}
    for number in range(rounds):
        start = number // 2 % len(names)
        order = [*names[start:], *names[:start]]
        if number % 2:
            order.reverse()
        for name in order:
            results[name].append(measure(name))
    return results


# --- batches of an endless iterator ---------------------------------------------------------------


@dataclass(frozen=True)
class Consumption:
    """The time that it took to consume some batches.

    Attributes:
        batches: number of batches that were timed.
        wall: seconds.
        waited: seconds of these inside ``next()``.
        cpu: CPU seconds of this process and its descendants.
        elsewhere: cores that other programs kept busy meanwhile, on average.
    """

    batches: int
    wall: float
    waited: float
    cpu: float
    elsewhere: float

    @property
    def seconds_per_batch(self) -> float:
        return self.wall / self.batches

    @property
    def cpu_seconds_per_batch(self) -> float:
        return self.cpu / self.batches


def consume(
    batches: Iterator[Any],
    step: Callable[[Any], object] | None = None,
    *,
    warm_up: int = 1,
    warm_up_seconds: float = 0.0,
    least: int = 1,
    seconds: float = 0.0,
) -> Consumption:
    """Take batches as a training loop does, and measure how long that takes in steady state.

    Args:
        batches: an endless iterator.
        step: what the loop does with every batch; its time counts, but not as waiting.
        warm_up: batches taken before the clock starts: processes start, buffers fill.
        warm_up_seconds: the least time from the first batch until the clock starts.
        least: batches to time, even if that takes longer than `seconds`.
        seconds: the least time to measure.
    """
    # No pause may come between warming up and timing: buffers would fill, and their batches be
    # counted for free.
    num_taken = 0
    warm_at = 0.0
    while num_taken < warm_up or time.perf_counter() < warm_at:
        batch = next(batches)
        if num_taken == 0:
            warm_at = time.perf_counter() + warm_up_seconds
        num_taken += 1
        if step is not None:
            step(batch)

    meter = Meter()
    count = 0
    waited = 0.0
    began = time.perf_counter()
    now = began
    while count < least or now - began < seconds:
        asked = now
        batch = next(batches)
        now = time.perf_counter()
        waited += now - asked
        # Only now: the step's own time is not time that the loop waited for a batch.
        if step is not None:
            step(batch)
            now = time.perf_counter()
        count += 1
    wall = now - began
    del batch
    spent = meter.read()
    return Consumption(count, wall, waited, spent.cpu, spent.elsewhere)


# --- CPU time -------------------------------------------------------------------------------------


class Spent(NamedTuple):
    """The CPU time that was spent since a `Meter` was made.

    Attributes:
        cpu: CPU seconds of this process and its descendants.
        elsewhere: cores that other programs kept busy, on average.
    """

    cpu: float
    elsewhere: float


class Meter:
    """The CPU time of this process and its descendants, and of all other programs, from now on.

    On a shared machine the others' share says how far a wall-clock time can be trusted.
    """

    def __init__(self) -> None:
        # The interval of the own time encloses that of all programs: what this process does between
        # two readings is not taken for others'.
        self._wall = time.perf_counter()
        self._own = tree_cpu_seconds(os.getpid())
        self._busy = _busy_seconds()

    def read(self) -> Spent:
        """Return what has been spent so far."""
        busy = _busy_seconds() - self._busy
        own = tree_cpu_seconds(os.getpid()) - self._own
        wall = time.perf_counter() - self._wall
        return Spent(own, max(0.0, busy - own) / wall)


def tree_cpu_seconds(pid: int) -> float:
    """Return the CPU seconds of a process, its living descendants, and those it has waited for."""
    total = 0.0
    root = psutil.Process(pid)
    for process in [root, *root.children(recursive=True)]:
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            # It ended meanwhile; its parent has its times among those of its children.
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total


def _busy_seconds() -> float:
    """Return the CPU seconds that all programs have had on the cores that this process may use."""
    cores = usable_core_numbers()
    total = 0.0
    for core, times in enumerate(psutil.cpu_times(percpu=True)):
        if core in cores:
            # Time that a hypervisor gave to other machines is missing here just as much.
            total += times.user + times.nice + times.system + getattr(times, "steal", 0.0)
    return total


def usable_core_numbers() -> set[int]:
    """Return the numbers of the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return set(os.sched_getaffinity(0))
    return set(range(os.cpu_count() or 1))


# --- ratios ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ratio:
    """The median over rounds of a quotient taken within each round, with its range."""

    median: float
    lowest: float
    highest: float

    @classmethod
    def of(cls, numerators: Sequence[float], denominators: Sequence[float]) -> Ratio:
        """Take one quotient for each round."""
        quotients = [a / b for a, b in zip(numerators, denominators, strict=True)]
        return cls(statistics.median(quotients), min(quotients), max(quotients))
