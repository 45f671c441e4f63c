"""When a lane opens and when it ends: the coordinator's side of `detaug.engine.local.lane`."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection

from detaug.engine.checking import Checks
from detaug.engine.health import Health
from detaug.engine.local import messages
from detaug.engine.local.assignments import Assignments
from detaug.engine.local.handles import Worker
from detaug.engine.local.lane import TICKET, Bell, Lane
from detaug.engine.order.outcomes import Task
from detaug.engine.order.schedule import Schedule
from detaug.pipeline.plan import BatchKey
from detaug.transport.channel import ChannelClosed, ChannelFull

#: A lane opens after so many small batches that came at this rate (per second), and ends when they come at a quarter of it.
_OPENS_AFTER, _OPENS_AT = 256, 1000.0
#: One that ended before it had so many batches was not worth it: the next one opens after twice as many small batches.
_WORTH, _MOST_PATIENT = 1000, 1 << 20
#: A batch that takes as many times as long (seconds) keeps so many workers busy; the user's thread takes a quarter of it.
_WORTH_ANOTHER = 40e-6
#: An epoch that has fewer batches left gets none.
_SHORTEST = 100
#: How often (seconds) it is looked at.
LOOK = 0.25


class Lanes:
    """The open lane, if any, and what is known of whether one is worth it.

    Args:
        schedule, lock: what is made, and what guards it.
        assignments: of tasks to workers.
        checks, health: to which lanes account for their time.
        tell_user: wakes a thread that waits for a batch.
        send_all_wanted: gives workers all that is wanted of their streams.
        possible: whether this pipeline's batches may be made in one.
    """

    def __init__(
        self,
        schedule: Schedule,
        lock: threading.Lock,
        assignments: Assignments[Worker],
        checks: Checks,
        health: Health,
        tell_user: Callable[[], None],
        send_all_wanted: Callable[[], None],
        possible: bool,
    ) -> None:
        self._schedule, self._lock = schedule, lock
        self._assignments, self._checks, self._health = assignments, checks, health
        self._tell_user, self._send_all_wanted = tell_user, send_all_wanted
        self._possible = possible and not schedule.probing and hasattr(os, "eventfd")
        self._bell: Bell | None = None
        self._lane: Lane | None = None
        self._small, self._since = 0, time.monotonic()
        self._opens_after = _OPENS_AFTER
        self._each = 0.0  # seconds that a batch of the last lane took
        self._looked, self._taken, self._begun, self._seconds = 0.0, 0, 0, 0.0

    @property
    def is_open(self) -> bool:
        """Whether there is a lane that must be looked at from time to time."""
        return self._lane is not None

    def answered(self, answer: messages.Answer) -> None:
        """An answer has come; one of a lane's batches says that the worker has left it, and ends it."""
        if not self._possible:
            return
        if answer.ticket & TICKET:
            self.end()
        elif type(answer) is messages.Inline:
            self._small += 1
        else:
            self._small, self._since = 0, time.monotonic()

    def look(self, workers: Collection[Worker]) -> None:
        """Open a lane, or end the one that is open, if that is due."""
        if self._lane is None:
            if self._small >= self._opens_after:
                now = time.monotonic()
                quick = self._small >= _OPENS_AT * (now - self._since)
                self._small, self._since = 0, now
                if quick:
                    self._open([worker for worker in workers if worker.ready and worker.whereabouts is not None])
        elif self._schedule.lane is not self._lane or not self._goes_well(workers):
            self.end()

    def _open(self, workers: list[Worker]) -> None:
        schedule = self._schedule
        if schedule.stateless:
            workers = workers[: self._useful_of(workers)]
        else:
            owners = schedule.lane_shares(schedule.position)
            workers = [worker for worker in workers if worker.index in owners]
        if len(workers) < (1 if schedule.stateless else schedule.busy_workers):
            return
        if not schedule.stateless:
            # What lies before a lane reaches its worker before the lane does: streams go on in the lane, and would have to be
            # made anew for a batch that is asked for later.
            self._send_all_wanted()
        try:
            bell = self._bell = self._bell or Bell()
            lane = Lane(workers, bell)
        except OSError:  # without memory or descriptors to spare: batches go the longer way
            self._possible = False
            return
        try:
            with self._lock:
                start = schedule.lane_start()
                if start is None:
                    return
                if (
                    not schedule.stateless and schedule.num_open
                ):  # the user has taken a batch meanwhile, and more is wanted
                    self._small = self._opens_after
                    return
                first, count = start
                if count is not None and count < _SHORTEST:
                    return
                period = len(workers)
                shares: list[tuple[int, ...]] = [(place,) for place in range(period)]
                if not schedule.stateless:
                    period, by_index = schedule.lane_period, schedule.lane_shares(first)
                    shares = [by_index[worker.index] for worker in workers]
                lane.begin_at(first, schedule.plan.world_size, count, period, shares)
                schedule.open_lane(lane)
            self._lane = lane
            self._looked, self._taken = time.monotonic(), schedule.position.taken
            self._begun, self._seconds = 0, 0.0
            for worker, order in lane.orders():
                if not worker.has_bell:
                    worker.channel.send(messages.Bell(), bell.descriptor, wait=False)
                    worker.has_bell = True
                worker.channel.send(order, lane.descriptor, wait=False)
            self._tell_user()  # what it waits for may come this way
        except (ChannelClosed, ChannelFull):
            self.end()
        finally:
            lane.close_descriptor()

    def _goes_well(self, workers: Collection[Worker]) -> bool:
        """Whether batches are still taken at a rate that is worth it, and as many workers make them as are useful. (Not
        whether they are made: what was asked for before the lane opened is taken first.)"""
        now, position = time.monotonic(), self._schedule.position
        assert self._lane is not None
        if now - self._looked < LOOK:
            return True
        begun, seconds = self._lane.progress()
        made, worked = begun - self._begun, seconds - self._seconds
        if made > 0:
            self._each = worked / made
            self._checks.worked(self._each, made)
            for worker in self._lane.workers:  # which take turns
                each = len(self._lane.workers)
                self._health.worked(worker.number, worked / each, 0, made // each)
        quick = position.taken - self._taken >= _OPENS_AT / 4 * (now - self._looked)
        self._looked, self._taken, self._begun, self._seconds = now, position.taken, begun, seconds
        few = self._schedule.stateless and self._useful_of(workers) >= 2 * len(self._lane.workers)
        return quick and not few

    def _useful_of(self, workers: Collection[Worker]) -> int:
        return max(1, min(len(workers), int(self._each / _WORTH_ANOTHER)))

    def end(self) -> None:
        """What was made in the lane is made, what workers are at was begun, and the rest is open. Nothing where none is open."""
        lane, self._lane = self._lane, None
        if lane is None:
            return
        with self._lock:
            lane.stop()
            begun = [(worker, Task(BatchKey(lane.first.epoch, step), probe=False)) for worker, step in lane.begun()]
            for worker, task in begun:
                worker.is_at(TICKET | task.key.step, task)
                self._schedule.start_ahead(task.key)
            if self._schedule.lane is lane:
                self._schedule.leave_lane()
        for worker, _ in begun:
            self._assignments.wake(worker)
        made = lane.progress()[0]
        self._opens_after = _OPENS_AFTER if made >= _WORTH else min(2 * self._opens_after, _MOST_PATIENT)
        self._small, self._since = 0, time.monotonic()
