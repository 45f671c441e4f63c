"""CPU time of everybody else on the machine."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path


class CoresElsewhere:
    """How many cores the processes that are not ours kept busy since this object was made.

    On a shared machine it says how far a wall-clock time can be trusted.
    """

    def __init__(self) -> None:
        self._wall, self._all, self._ours = time.monotonic(), _busy_seconds(), _own_seconds()

    def read(self) -> float | None:
        """A mean over the time since then; None where the system does not tell."""
        busy = _busy_seconds()
        if busy is None or self._all is None:
            return None
        foreign = (busy - self._all) - (_own_seconds() - self._ours)
        return max(0.0, foreign / (time.monotonic() - self._wall))


def _busy_seconds() -> float | None:
    """CPU seconds of all processes on all cores, as Linux counts them."""
    stat = Path("/proc/stat")
    if not stat.exists():
        return None
    user, nice, system = (int(number) for number in stat.read_text(encoding="utf-8").split(maxsplit=4)[1:4])
    return (user + nice + system) / os.sysconf("SC_CLK_TCK")


def _own_seconds() -> float:
    """This process and all that it started and that have ended."""
    return sum(
        usage.ru_utime + usage.ru_stime
        for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )
