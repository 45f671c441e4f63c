"""Workers that do not answer: the log says where they are; those that exceed the limit are killed, or abandoned."""

from __future__ import annotations

import logging
import math
import signal
import time
from collections.abc import Collection
from typing import TYPE_CHECKING

from detaug.engine.local.handles import Worker
from detaug.processes.whereabouts import ASKING, state_of

if TYPE_CHECKING:
    from detaug.engine.local.coordinator import Coordinator
    from detaug.engine.local.pool import Pool

logger = logging.getLogger("detaug")

#: A batch that takes longer than this (seconds) is mentioned, and again each time that doubles; so is a worker's start.
SLOW_SECONDS = 60.0
#: Whose start takes longer than this (seconds), others stand in for: to step its streams forward in vain costs more than a start.
LATE_SECONDS = 20.0
#: How long (seconds) a worker may take to say where it is. One that is stopped, or waits in the kernel, never does.
_ANSWER_SECONDS = 0.3
#: A worker whose channel is closed has this long (seconds) to exit.
_LEAVE_SECONDS = 1.0
#: A killed worker that has not ended after this (seconds) cannot be killed now: it waits in the kernel.
_KILL_SECONDS = 3.0
_TICK, _SOON = 1.0, 0.05


class StallWatch:
    """Looks at the workers from time to time.

    Args:
        limit: seconds a batch may take; None: for ever.
        pool: sends signals, and is told of workers that cannot be killed.
        coordinator: is told of workers that take long to start.
    """

    def __init__(self, limit: float | None, pool: Pool, coordinator: Coordinator) -> None:
        self._limit = limit
        self._pool = pool
        self._coordinator = coordinator
        # Thousands of messages a second may come, and each would have every worker looked at.
        self._looked = -math.inf
        self._seconds: float | None = None

    def seconds_to_next_look(self, workers: Collection[Worker]) -> float | None:
        """None: nothing can happen that a message would not tell."""
        if self._seconds is None or time.monotonic() - self._looked >= _SOON:
            self._seconds = None
            if any(worker.asked for worker in workers):
                self._seconds = _SOON
            elif any(worker.tasks or worker.left or not worker.ready for worker in workers):
                self._seconds = _TICK
        return self._seconds

    @staticmethod
    def forgive(workers: Collection[Worker], seconds: float) -> None:
        """This very process did not run for so long (Ctrl-Z, a paused container): nor, most likely, did they."""
        now = time.monotonic()
        for worker in workers:
            worker.since = min(now, worker.since + seconds)
            worker.killed = worker.killed and min(now, worker.killed + seconds)

    def look(self, workers: Collection[Worker]) -> None:
        """Say, kill or give up what is due; nothing if that was done a moment ago."""
        now = time.monotonic()
        if now - self._looked < _SOON:
            return
        self._looked, self._seconds = now, None
        for worker in list(workers):
            if worker.left:
                self._hurry(worker, now)
            elif not worker.ready:
                if now - worker.since > LATE_SECONDS:
                    self._coordinator.missing(worker)
                if self._is_news(worker, now - worker.since):
                    logger.warning("%s has been starting for %.0f s", worker.name, now - worker.since)
            elif worker.tasks:
                self._look_at_batch(worker, now)

    def _look_at_batch(self, worker: Worker, now: float) -> None:
        seconds = now - worker.since
        over = self._limit is not None and seconds > self._limit
        if not over and not self._is_slow(worker, seconds):
            return
        if not worker.asked:
            worker.ask()
            if ASKING is not None:
                self._pool.signal(worker, ASKING)
            return
        place = worker.place()
        if not place and now - worker.asked < _ANSWER_SECONDS:
            return
        worker.asked = 0.0
        found = [f"it is in {place}" if place else "", state_of(worker.pid)]
        where = "; ".join(filter(None, found)) or "it does not say where it is"
        if over:
            worker.leaving = f"killed: it made no progress for {self._limit:g} s; {where}"
            worker.left = worker.killed = now
            self._pool.signal(worker, signal.SIGKILL)
        elif self._is_news(worker, seconds):
            text = "%s has been making %s for %.0f s; %s"
            logger.warning(text, worker.name, self._coordinator.describe(worker), seconds, where)

    def _is_slow(self, worker: Worker, seconds: float) -> bool:
        return seconds > max(SLOW_SECONDS, 2 * worker.warned)

    def _is_news(self, worker: Worker, seconds: float) -> bool:
        news = self._is_slow(worker, seconds)
        if news:
            worker.warned = seconds
        return news

    def _hurry(self, worker: Worker, now: float) -> None:
        if not worker.killed:
            if now - worker.left > _LEAVE_SECONDS:
                worker.killed = now
                self._pool.signal(worker, signal.SIGKILL)
        elif now - worker.killed > _KILL_SECONDS:
            if worker.signalled:
                self._pool.abandon(worker)
            else:
                worker.killed = now
                self._pool.kill_helper()
