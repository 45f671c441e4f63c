"""Time calls within one process, the systems in turn."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple


class Seconds(NamedTuple):
    """Time of this process."""

    wall: float
    cpu: float


class Stopwatch:
    """Adds up the time of the ``with`` blocks that it is entered for."""

    def __init__(self) -> None:
        self.wall = 0.0
        self.cpu = 0.0

    def __enter__(self) -> None:
        self._wall = time.perf_counter()
        self._cpu = time.process_time()

    def __exit__(self, *_: object) -> None:
        self.cpu += time.process_time() - self._cpu
        self.wall += time.perf_counter() - self._wall


#: Does the work of a draw. What is to be timed stands in ``with stopwatch:``; seeding, copying the
#: input and freeing the result do not.
Work = Callable[[int, Stopwatch], object]


def alternate(systems: Mapping[str, Work], draws: Iterable[int]) -> dict[str, list[Seconds]]:
    """Return the time of every system for every draw.

    Each draw goes to all systems, forwards and backwards by turns. Of what takes one thread the CPU
    time is what it would take on an idle machine, whatever else this one does.
    """
    seconds: dict[str, list[Seconds]] = {name: [] for name in systems}
    names = list(systems)
    for draw in draws:
        for name in names:
            stopwatch = Stopwatch()
            systems[name](draw, stopwatch)
            seconds[name].append(Seconds(stopwatch.wall, stopwatch.cpu))
        # A system that always came second would find the caches as the first one leaves them.
        names.reverse()
    return seconds
