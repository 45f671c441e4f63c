"""How a run is: what its loop has waited for batches, what its processes have done, and what would help."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass

from detaug.memory.limits import usable_cores

logger = logging.getLogger("detaug")

#: A loop that waits for a larger share of an epoch's time is told so, if the epoch took so many seconds and batches.
_WORTH_TELLING, _SHORTEST, _FEWEST = 0.05, 10.0, 10
#: Workers that work for a larger share of the time have no time to spare.
_BUSY = 0.85


@dataclass
class Health:
    """What is counted. The user's threads write `waited`, the engine's thread all else.

    Attributes:
        waited: seconds that the user's threads have waited for batches, but for the first one of each engine.
        worked: seconds that batches took, in all processes together.
        restarts, retirements: processes that died, or exceeded their memory, and were replaced.
        is_fresh: the engine has given no batch yet. The start of processes is no waiting, and not of an epoch's time.
    """

    waited: float = 0.0
    worked: float = 0.0
    restarts: int = 0
    retirements: int = 0
    is_fresh: bool = True
    _is_told: bool = False
    _began: tuple[float, int, float, float] | None = None

    def epoch_begins(self, taken: int, anew: bool = True) -> None:
        """Of an epoch so many batches have been taken before. Not `anew`: if none has begun."""
        if anew or self._began is None:
            self._began = time.perf_counter(), taken, self.waited, self.worked

    def got_a_batch(self, asked: float, taken: int) -> None:
        """It was asked for then, when so many of the epoch had been taken."""
        if self.is_fresh:
            self.is_fresh = False
            self.epoch_begins(taken)
        else:
            self.waited += time.perf_counter() - asked

    def epoch_ends(self, number: int, taken: int, num_processes: int) -> None:
        """So many of it have been taken now. The log says so if the loop waited: the first time it is a warning. `num_processes`:
        that can make batches at a time."""
        if self._began is None:
            return
        (clock, before, waited, worked), self._began = self._began, None
        seconds, batches, waited = time.perf_counter() - clock, taken - before, self.waited - waited
        if seconds < _SHORTEST or batches < _FEWEST or waited <= _WORTH_TELLING * seconds:
            return
        logger.log(
            logging.INFO if self._is_told else logging.WARNING,
            "epoch %d: the loop waited for data %.0f %% of its %.0f s (%.3g batches/s): %s",
            number,
            100 * waited / seconds,
            seconds,
            batches / seconds,
            what_helps(num_processes, (self.worked - worked) / (seconds * max(1, num_processes))),
        )
        self._is_told = True


def what_helps(num_processes: int, busy: float) -> str:
    """Advice for a loop that waits for so many processes. `busy`: the share of the time in which they worked."""
    available = usable_cores()
    if num_processes == 0:
        return (
            f"all batches are made in the calling process; num_processes={max(1, available - 1)} makes them beside it"
        )
    worked = f"its {num_processes} processes worked {100 * busy:.0f} % of the time"
    if busy < _BUSY:
        return f"{worked}, so the cost of batches varies: a larger window helps (num_cached=)"
    return f"{worked}: a pipeline that costs less helps, or more of them (this machine has {available} cores)"


def idle_told(idle: int, num_workers: int, loader: str, num_streams: int) -> str:
    """That so many of the processes have nothing to do, since a loader that keeps state has fewer streams; and what helps."""
    return (
        f"{idle} of {num_workers} processes will be idle: {loader} keeps state between batches, and its streams (num_streams="
        f"{num_streams}) can be made by {num_workers - idle} at most. Pass num_streams=... if several copies of it may share the "
        "work (it changes the batches), or stateless=True if it keeps nothing between batches."
    )
