"""Workers that do not answer: they are reported, killed, and abandoned where that has no effect."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Collection

import psutil

from detaug.engine.errors_from_workers import BatchLocator, describe_batch
from detaug.engine.local.handles import Worker

logger = logging.getLogger("detaug")

#: A batch that takes longer than this (seconds) is mentioned, and again each time that doubles; so
#: is a worker's start.
SLOW_SECONDS = 60.0
#: A worker may take this long (seconds) to start, whatever `stall_timeout` says: it imports
#: libraries.
SHORTEST_START = 60.0
#: A worker whose channel is closed has this long (seconds) to exit.
_LEAVE_SECONDS = 1.0
#: A killed worker that has not ended after this (seconds) cannot be killed now: it waits in the
#: kernel.
_KILL_SECONDS = 3.0
#: It is looked for them at least so often (seconds).
TICK = 1.0
_STATES = {
    psutil.STATUS_STOPPED: "it is stopped (SIGSTOP; SIGCONT continues it)",
    psutil.STATUS_TRACING_STOP: "a debugger has stopped it",
    psutil.STATUS_DISK_SLEEP: "it waits in the kernel and cannot be interrupted (a stuck file "
    "system or disk?)",
}


def _forgive(worker: Worker, seconds: float, now: float) -> None:
    """Do not count `seconds` during which this process did not run."""
    worker.since = min(now, worker.since + seconds)
    if worker.killed:
        worker.killed = min(now, worker.killed + seconds)


class StallWatch:
    """Looks for workers that do not answer.

    Args:
        limit: Seconds after which a worker is killed that has been making the same batch, or that
            has been starting (but see `SHORTEST_START`). None: none is.
        kill: Kills a worker; it may take a while to end.
        abandon: Gives up a worker that cannot be killed.
        places: What messages say of batches.
    """

    def __init__(
        self,
        limit: float | None,
        places: BatchLocator,
        *,
        kill: Callable[[Worker], None],
        abandon: Callable[[Worker], None],
    ) -> None:
        self._limit = limit
        self._places = places
        self._kill_process = kill
        self._abandon = abandon
        self._looked = time.monotonic()

    def look(self, workers: Collection[Worker]) -> None:
        """Warn about slow workers, kill stalled ones, and abandon those that cannot be killed."""
        now = time.monotonic()
        since_last = now - self._looked
        # This process was suspended itself (Ctrl-Z, a paused job), and most likely its workers too.
        was_suspended = since_last > 2 * TICK
        for worker in list(workers):
            if was_suspended:
                _forgive(worker, since_last, now)
            elapsed = now - worker.since
            limit = self._limit_of(worker)
            if worker.left:
                self._hurry(worker, now)
            elif limit is not None and elapsed > limit:
                self._kill(worker, now, limit)
            elif worker.is_busy and elapsed > max(SLOW_SECONDS, 2 * worker.warned):
                self._warn(worker, elapsed)
        self._looked = time.monotonic()

    def _limit_of(self, worker: Worker) -> float | None:
        """Return how long (seconds) what the worker is doing may take; None: any time."""
        if self._limit is None or not worker.is_busy:
            return None
        if worker.ready:
            return self._limit
        return max(self._limit, SHORTEST_START)

    def _kill(self, worker: Worker, now: float, limit: float) -> None:
        if worker.ready:
            reasons = [f"killed: it made no progress for {limit:g} s", *_state_of(worker.pid)]
        else:
            reasons = [f"killed: it had not started after {limit:g} s"]
        worker.leaving = "; ".join(reasons)
        worker.left = now
        worker.killed = now
        self._kill_process(worker)

    def _warn(self, worker: Worker, elapsed: float) -> None:
        worker.warned = elapsed
        if worker.tasks:
            activity = f"making {describe_batch(worker.tasks[0], self._places)}"
            hints = _state_of(worker.pid) or [f"py-spy dump --pid {worker.pid} shows where it is"]
        else:
            activity = "starting"
            hints = []
        message = [f"{worker.name} has been {activity} for {elapsed:.0f} s", *hints]
        logger.warning("%s", "; ".join(message))

    def _hurry(self, worker: Worker, now: float) -> None:
        if worker.killed:
            if now - worker.killed > _KILL_SECONDS:
                self._abandon(worker)
        elif now - worker.left > _LEAVE_SECONDS:
            worker.killed = now
            self._kill_process(worker)


def _state_of(pid: int) -> list[str]:
    """What the kernel says of a process that does not answer; nothing where that explains nothing."""
    with contextlib.suppress(OSError, psutil.Error):
        status = psutil.Process(pid).status()
        return [what for of, what in _STATES.items() if of == status]
    return []
