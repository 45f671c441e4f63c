"""How a run is: what its loop has waited for batches, what its processes have done."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass

from detaug.system.limits import usable_cores

logger = logging.getLogger("detaug")

#: A loop that waits for a larger share of an epoch's time is told so, if the epoch took so many
#: seconds and batches.
_WORTH_TELLING, _SHORTEST, _FEWEST = 0.05, 10.0, 10
_NO_WORKERS = "the calling process (num_processes=0)"


@dataclass
class RunStats:
    """What is counted. The user's threads write `waited`, the engine's thread all else.

    Attributes:
        waited: seconds that the user's threads have waited for batches, but for the first one of
            each engine.
        worked: seconds that batches took, in all processes together.
        restarts, retirements: processes that died, or exceeded their memory, and were replaced.
        is_fresh: the engine has given no batch yet. The start of processes is no waiting, and not
            of an epoch's time.
    """

    waited: float = 0.0
    worked: float = 0.0
    restarts: int = 0
    retirements: int = 0
    is_fresh: bool = True
    _is_told: bool = False
    _batches: int = 0  # of the epoch
    _began: tuple[float, float, float] | None = (
        None  # with the epoch's first batch: the clock, `waited`, `worked`
    )

    def on_batch(self, asked: float) -> None:
        """It was asked for then."""
        now = time.perf_counter()
        if self.is_fresh or self._began is None:
            self._began, self._batches = (
                (now if self.is_fresh else asked, self.waited, self.worked),
                0,
            )
        if not self.is_fresh:
            self.waited += now - asked
        self._batches += 1
        self.is_fresh = False

    def on_epoch_end(self, number: int, num_processes: int) -> None:
        """The log says so if the loop waited: the first time it is a warning. `num_processes` can
        make batches at a time.
        """
        if self._began is None:
            return
        (clock, waited, worked), self._began = self._began, None
        seconds, waited = time.perf_counter() - clock, self.waited - waited
        if seconds < _SHORTEST or self._batches < _FEWEST or waited <= _WORTH_TELLING * seconds:
            return
        makers = (
            f"{num_processes} worker{'s' * (num_processes > 1)}" if num_processes else _NO_WORKERS
        )
        busy = (self.worked - worked) / (seconds * max(1, num_processes))
        logger.log(
            logging.INFO if self._is_told else logging.WARNING,
            f"epoch {number}: the loop waited for data {100 * waited / seconds:.0f} % of its "
            f"{seconds:.0f} s "
            f"({self._batches / seconds:.3g} batches/s); batches are made by {makers}, busy "
            f"{100 * busy:.0f} % of the time, "
            f"on a machine with {usable_cores()} cores",
        )
        self._is_told = True
