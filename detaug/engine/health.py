"""How a run is: what its loop has waited for batches, what its processes have done, and what would help."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, NamedTuple

from detaug.processes import cores

#: A loop that waits for a larger share of an epoch's time is told so, if the epoch took so many seconds and batches.
WORTH_TELLING, _SHORTEST, _FEWEST = 0.05, 10.0, 10
#: Workers that work for a larger share of the time have no time to spare.
_BUSY = 0.85


@dataclass
class Health:
    """What is counted. The user's threads write `waited`, `batches` and `seconds`, the engine's thread all else.

    Attributes:
        waited: seconds that the user's threads have waited for batches, but for the first one of each engine.
        worked: seconds that batches took, in all processes together.
        restarts, retirements: processes that died, or exceeded their memory, and were replaced.
        batches, seconds: of the epochs that have ended.
    """

    waited: float = 0.0
    worked: float = 0.0
    restarts: int = 0
    retirements: int = 0
    batches: int = 0
    seconds: float = 0.0
    _began: tuple[float, int, float, float] | None = None

    @property
    def in_epoch(self) -> bool:
        """One has begun and not ended."""
        return self._began is not None

    def epoch_begins(self, taken: int) -> None:
        """Of an epoch so many batches have been taken before."""
        self._began = time.perf_counter(), taken, self.waited, self.worked

    def epoch_ends(self, taken: int) -> Epoch:
        """So many of it have been taken now."""
        epoch, self._began = self._so_far(taken), None
        if epoch.batches:  # else the time was nobody's
            self.batches += epoch.batches
            self.seconds += epoch.seconds
        return epoch

    def _so_far(self, taken: int) -> Epoch:
        if self._began is None:
            return Epoch(0, 0.0, 0.0, 0.0)
        clock, before, waited, worked = self._began
        return Epoch(max(0, taken - before), time.perf_counter() - clock, self.waited - waited, self.worked - worked)

    def as_dict(self, taken: int) -> dict[str, Any]:
        """What `DeterministicAugmenter.stats` tells; `taken` batches of the epoch that is going on."""
        epoch = self._so_far(taken)
        return {
            "batches": self.batches + epoch.batches,
            "seconds": self.seconds + epoch.seconds,
            "waited": self.waited,
            "restarts": self.restarts,
            "retirements": self.retirements,
        }


class Epoch(NamedTuple):
    """An epoch, or what of it was seen: batches that were taken, seconds that it took, seconds that the loop waited, and seconds
    of all processes' work."""

    batches: int
    seconds: float
    waited: float
    worked: float

    @property
    def is_slow(self) -> bool:
        """Whether it is worth telling that the loop waited."""
        long = self.seconds >= _SHORTEST and self.batches >= _FEWEST
        return long and self.waited > WORTH_TELLING * self.seconds

    def told(self, number: int) -> str:
        """That the loop waited."""
        return (
            f"epoch {number}: the loop waited for data {100 * self.waited / self.seconds:.0f} % of its {self.seconds:.0f} s "
            f"({self.batches / self.seconds:.3g} batches/s)"
        )

    def what_helps(self, num_processes: int, num_streams: int | None, num_cached: int) -> str:
        """Advice.

        Args:
            num_processes: that make batches.
            num_streams: that processes can be busy with; None: the loader is stateless, and all can.
            num_cached: as the user gave it.
        """
        available = cores.usable()
        if num_processes == 0:
            return f"all batches are made in the calling process; num_processes={max(1, available - 1)} makes them beside it"
        if num_streams is not None and num_streams < num_processes:
            return (
                f"the loader keeps state and has {num_streams} streams, so that no more processes work at a time; stateless=True "
                "if it keeps nothing, or num_streams="
            )
        busy = self.worked / (self.seconds * num_processes)
        if busy < _BUSY:
            return (
                f"its {num_processes} processes worked {100 * busy:.0f} % of the time, so the cost of batches varies: a larger "
                f"window helps (num_cached={max(4, 2 * num_cached)})"
            )
        if num_processes < available:
            return f"its {num_processes} processes worked all the time: more of them help (this machine has {available} cores)"
        return (
            f"its {num_processes} processes worked all the time, on {available} cores: a pipeline that costs less helps"
        )


def idle_told(idle: int, num_workers: int, loader: str, num_streams: int) -> str:
    """That so many of the processes have nothing to do, since a loader that keeps state has fewer streams; and what helps."""
    busy = num_workers - idle
    return (
        f"{idle} of {num_workers} processes will be idle: {loader} keeps state between batches, and its {num_streams} "
        f"stream{'' if num_streams == 1 else 's'} can be made by {busy} process{'' if busy == 1 else 'es'} at most. Pass "
        "num_streams=... if several copies of it may share the work (it changes the batches), or stateless=True if it keeps "
        "nothing between batches."
    )
