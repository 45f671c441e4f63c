"""Alternating timing in one process: every draw goes to all systems, each time in another order.

What is timed takes one thread, so its CPU time is what it would take on an idle machine, whatever else this one does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from benchmarks.report import Check, Row, ratio_check
from detaug.bench.measuring import Ratio

BLOCKS = 5

#: Seconds of this process's CPU time.
clock = time.process_time

#: The number of a draw -> what is timed. What is done before the return (seeding, copying the input) is not.
Prepare = Callable[[int], Callable[[], object]]


@dataclass(frozen=True)
class Settings:
    """How long to measure.

    Attributes:
        seconds: time for each row, of all systems together; there are at least `least` draws.
        quick: a few draws: whether everything runs, not how fast.
    """

    seconds: float = 10.0
    least: int = 7
    quick: bool = False

    def over(self, began: float, draws: int) -> bool:
        """Whether enough has been measured."""
        if self.quick:
            return draws >= 2
        return draws >= self.least and time.perf_counter() - began >= self.seconds


def one_thread() -> None:
    """Settle a measurement's process as the engine settles its workers."""
    from detaug.processes.threads import keep_one_thread

    keep_one_thread()


def alternating(
    systems: Mapping[str, Prepare], settings: Settings, warm_up: int = 2
) -> dict[str, list[float]]:
    """Seconds of each system, one number for each draw. The first draws (compiling, allocating) do not count."""
    seconds: dict[str, list[float]] = {name: [] for name in systems}
    for draw in range(warm_up):
        for prepare in systems.values():
            prepare(draw)()
    began, draw = time.perf_counter(), 0
    while not settings.over(began, draw):
        order = list(systems) if draw % 2 == 0 else list(reversed(list(systems)))
        for name in order:
            seconds[name].append(_timed(systems[name](warm_up + draw)))
        draw += 1
    return seconds


def _timed(run: Callable[[], object]) -> float:
    begin = clock()
    result = run()
    elapsed = clock() - begin
    del result  # freed outside the clock
    return elapsed


def row_of(
    name: str,
    seconds: Mapping[str, Sequence[float]],
    bounds: Mapping[str, float | None],
    settings: Mapping[str, object],
) -> Row:
    """Milliseconds, and how many times faster detaug is than each of the others; only those with a bound are judged.

    A draw may cost one system more than the other, for their random numbers differ; so quotients are taken between
    means over many draws, in `BLOCKS` blocks.
    """
    means = {system: _block_means(values) for system, values in seconds.items()}
    checks: list[Check] = [
        ratio_check(
            other, 1e3 * median(theirs), Ratio.of(theirs, means["detaug"]), ">=", bounds.get(other)
        )
        for other, theirs in means.items()
        if other != "detaug"
    ]
    return Row(
        name=name,
        unit="ms",
        ours=1e3 * median(means["detaug"]),
        checks=checks,
        repeats=len(seconds["detaug"]),
        settings=dict(settings),
        details={"seconds": {system: list(values) for system, values in seconds.items()}},
    )


def _block_means(values: Sequence[float]) -> list[float]:
    """The draws are dealt out to the blocks in turn."""
    blocks = [values[first::BLOCKS] for first in range(min(BLOCKS, len(values)))]
    return [fmean(block) for block in blocks]
