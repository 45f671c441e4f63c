"""Workers that do not respond: they are reported, killed, and abandoned if that has no effect."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Collection

import psutil

from detaug.engine.errors_from_workers import BatchLocator, describe_batch
from detaug.engine.local.handles import Worker

logger = logging.getLogger("detaug")

#: Seconds. A slower batch, or a slower start of a worker, is logged, and again each time that the
#: time doubles.
SLOW_SECONDS = 60.0
#: Seconds. A worker may take this long to start, whatever `stall_timeout` is: it imports libraries.
SHORTEST_START = 60.0
#: Seconds that a worker has to exit after its channel was closed.
_LEAVE_SECONDS = 1.0
#: Seconds. A killed worker that has not ended by then cannot be killed now: it waits in the kernel.
_KILL_SECONDS = 3.0
#: Seconds between two checks, at most.
TICK = 1.0
#: States of processes that explain why a worker does not respond.
_STATES = {
    psutil.STATUS_STOPPED: "it is stopped (SIGSTOP; SIGCONT continues it)",
    psutil.STATUS_TRACING_STOP: "a debugger has stopped it",
    psutil.STATUS_DISK_SLEEP: "it waits in the kernel and cannot be interrupted (a stuck file "
    "system or disk?)",
}


def _forgive(worker: Worker, seconds: float, now: float) -> None:
    """Do not count `seconds` during which this process did not run."""
    worker.task_started_at = min(now, worker.task_started_at + seconds)
    if worker.killed_at:
        worker.killed_at = min(now, worker.killed_at + seconds)


class StallWatch:
    """A watch over workers that do not respond.

    Args:
        limit: Seconds. A worker that has been making the same batch for longer, or has been
            starting for longer (but see `SHORTEST_START`), is killed. None: no worker is.
        locator: locates batches in messages.
        kill: kills a worker, which may take a while to end.
        abandon: abandons a worker that cannot be killed.
    """

    def __init__(
        self,
        limit: float | None,
        locator: BatchLocator,
        *,
        kill: Callable[[Worker], None],
        abandon: Callable[[Worker], None],
    ) -> None:
        self._limit = limit
        self._locator = locator
        self._kill_process = kill
        self._abandon = abandon
        self._checked_at = time.monotonic()

    def check(self, workers: Collection[Worker]) -> None:
        """Warn about slow workers, kill stalled ones, and abandon those that cannot be killed."""
        now = time.monotonic()
        since_last = now - self._checked_at
        # This process was suspended itself (Ctrl-Z, a paused job), and most likely its workers too.
        was_suspended = since_last > 2 * TICK
        for worker in list(workers):
            if was_suspended:
                _forgive(worker, since_last, now)
            elapsed = now - worker.task_started_at
            limit = self._limit_of(worker)
            if worker.disconnected_at:
                self._escalate(worker, now)
            elif limit is not None and elapsed > limit:
                self._kill(worker, now, limit)
            elif worker.is_busy and elapsed > max(SLOW_SECONDS, 2 * worker.warned_after):
                self._warn(worker, elapsed)
        self._checked_at = time.monotonic()

    def _limit_of(self, worker: Worker) -> float | None:
        """Return the seconds that the worker's task or start may take; None: any time."""
        if self._limit is None or not worker.is_busy:
            return None
        if worker.ready:
            return self._limit
        return max(self._limit, SHORTEST_START)

    def _kill(self, worker: Worker, now: float, limit: float) -> None:
        """Kill a worker that has taken longer than its limit."""
        if worker.ready:
            reasons = [f"killed: it made no progress for {limit:g} s", *_state_of(worker.pid)]
        else:
            reasons = [f"killed: it had not started after {limit:g} s"]
        worker.kill_reason = "; ".join(reasons)
        worker.disconnected_at = now
        worker.killed_at = now
        self._kill_process(worker)

    def _warn(self, worker: Worker, elapsed: float) -> None:
        """Log that a worker is slow."""
        worker.warned_after = elapsed
        if worker.tasks:
            activity = f"making {describe_batch(worker.tasks[0], self._locator)}"
            hints = _state_of(worker.pid) or [f"py-spy dump --pid {worker.pid} shows where it is"]
        else:
            activity = "starting"
            hints = []
        message = [f"{worker.name} has been {activity} for {elapsed:.0f} s", *hints]
        logger.warning("%s", "; ".join(message))

    def _escalate(self, worker: Worker, now: float) -> None:
        """Kill a disconnected worker that does not exit; abandon it if it was killed before."""
        if worker.killed_at:
            if now - worker.killed_at > _KILL_SECONDS:
                self._abandon(worker)
        elif now - worker.disconnected_at > _LEAVE_SECONDS:
            worker.killed_at = now
            self._kill_process(worker)


def _state_of(pid: int) -> list[str]:
    """Return the explanation that the kernel's state of a process gives; empty: it gives none."""
    with contextlib.suppress(OSError, psutil.Error):
        status = psutil.Process(pid).status()
        if status in _STATES:
            return [_STATES[status]]
    return []
