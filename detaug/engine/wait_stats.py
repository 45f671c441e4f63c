"""Statistics of a run: how long its loop has waited for batches, what its processes have done."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import NamedTuple

from detaug.system.limits import usable_cores

logger = logging.getLogger("detaug")

#: Share of an epoch's time. If a loop waits longer, the log says so.
_WORTH_TELLING = 0.05
#: Seconds. The waiting in shorter epochs is not logged.
_SHORTEST = 10.0
#: The waiting in epochs of fewer batches is not logged.
_FEWEST = 10
_NO_WORKERS = "the calling process (num_processes=0)"


class _EpochStart(NamedTuple):
    """The clock and the totals (seconds) when an epoch's first batch was asked for."""

    clock: float
    wait_seconds: float
    work_seconds: float


@dataclass
class RunStats:
    """Times and counts of a run.

    The user's threads write `wait_seconds`, the engine's thread writes everything else.

    Attributes:
        wait_seconds: seconds that the user's threads have waited for batches, except for the first
            batch of each engine.
        work_seconds: seconds that batches took, summed over all processes.
        restarts: number of processes that died and were replaced.
        retirements: number of processes that exceeded their memory and were replaced.
        is_fresh: True: the engine has not returned a batch yet. The start of its processes counts
            neither as waiting nor as time of the epoch.
    """

    wait_seconds: float = 0.0
    work_seconds: float = 0.0
    restarts: int = 0
    retirements: int = 0
    is_fresh: bool = True
    _is_reported: bool = False
    _num_batches: int = 0
    _epoch_start: _EpochStart | None = None

    def on_batch(self, asked_at: float) -> None:
        """Count a batch that was just returned.

        Args:
            asked_at: when it was asked for, by `time.perf_counter`.
        """
        now = time.perf_counter()
        if self.is_fresh:
            # Also in the middle of an epoch that is resumed: the shares are those of its rest.
            self._start_epoch(now)
        elif self._epoch_start is None:
            self._start_epoch(asked_at)
        if not self.is_fresh:
            self.wait_seconds += now - asked_at
        self._num_batches += 1
        self.is_fresh = False

    def _start_epoch(self, clock: float) -> None:
        self._epoch_start = _EpochStart(clock, self.wait_seconds, self.work_seconds)
        self._num_batches = 0

    def on_epoch_end(self, epoch: int, num_processes: int) -> None:
        """Log how long the loop waited in an epoch, if that was long: first as a warning.

        Args:
            epoch: the epoch.
            num_processes: number of batches that can be made at a time; 0: by the calling process.
        """
        start = self._epoch_start
        if start is None:
            return
        self._epoch_start = None
        seconds = time.perf_counter() - start.clock
        waited = self.wait_seconds - start.wait_seconds
        if seconds < _SHORTEST or self._num_batches < _FEWEST or waited <= _WORTH_TELLING * seconds:
            return
        busy = (self.work_seconds - start.work_seconds) / (seconds * max(1, num_processes))
        level = logging.INFO if self._is_reported else logging.WARNING
        logger.log(
            level,
            f"epoch {epoch}: the loop waited for data {100 * waited / seconds:.0f} % of its"
            f" {seconds:.0f} s ({self._num_batches / seconds:.3g} batches/s); batches are made by"
            f" {_describe_makers(num_processes)}, busy {100 * busy:.0f} % of the time, on a machine"
            f" with {usable_cores()} cores",
        )
        self._is_reported = True


def _describe_makers(num_processes: int) -> str:
    """Return the number of workers in words."""
    if not num_processes:
        return _NO_WORKERS
    if num_processes == 1:
        return "1 worker"
    return f"{num_processes} workers"
