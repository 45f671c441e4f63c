"""Fair timing on a noisy machine: fresh processes, interleaved rounds, medians of ratios taken within a round.

`detaug bench` and `python -m benchmarks` both measure with this.
"""

from __future__ import annotations

import multiprocessing
import statistics
import traceback
from collections.abc import Callable, Sequence
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
    """
    result: T = result_of(*start_fresh_process(function, *args))
    return result


def start_fresh_process(function: Callable[..., T], *args: Any) -> tuple[Any, Connection]:
    """As `in_fresh_process`, but return at once with the process and the connection its result will come through."""
    receiver, sender = _fork.Pipe(duplex=False)
    process = _fork.Process(target=_call, args=(sender, function, args))
    process.start()
    sender.close()
    return process, receiver


def result_of(process: Any, receiver: Connection) -> Any:
    """Wait for a process of `start_fresh_process` and return its result.

    Raises:
        MeasurementError: it raised, died, or was still running after `MEASUREMENT_TIMEOUT`.
    """
    try:
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
        process.join(
            10
        )  # what was measured is known by now; a peer that cannot shut down must not stop the rest
        if process.is_alive():
            process.kill()
            process.join()
    if failed:
        raise MeasurementError(f"a measurement failed:\n{result}")
    return result


def _call(sender: Connection, function: Callable[..., T], args: tuple[Any, ...]) -> None:
    try:
        message: tuple[bool, Any] = (False, function(*args))
    except BaseException:
        message = (True, traceback.format_exc())
    sender.send(message)
    sender.close()


def interleaved(
    names: Sequence[str], rounds: int, measure: Callable[[str], T]
) -> dict[str, list[T]]:
    """``{name: [measure(name) in each round]}``; each round measures every name, starting from another one each time,
    forwards and backwards by turns, so that a drift of the machine's speed falls on all of them alike."""
    results: dict[str, list[T]] = {name: [] for name in names}
    for number in range(rounds):
        start = number // 2 % len(names)
        order = [*names[start:], *names[:start]]
        for name in order if number % 2 == 0 else reversed(order):
            results[name].append(measure(name))
    return results


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
