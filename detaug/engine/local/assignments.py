"""Which worker gets which tasks, and how many wait at it: decided here and sent elsewhere, without processes or clocks.

A worker that makes a batch in a tenth of a second has a second task waiting, and so loses no time between the two. One
that makes hundreds in a second is given more, several at once: each message costs as much as a quick batch. (Batches that are
small as well soon come through a lane, without messages.)

Invariants:
- A worker begins its tasks in the order in which it was given them; the first is being made, the others can be taken
  back until it begins them.
- A worker with few tasks lies in the bucket of their number, until it is given more. An event touches the buckets of
  the workers it is about and no others.
"""

from __future__ import annotations

import heapq
from collections import deque
from typing import Generic, Protocol, TypeVar

from detaug.engine.order.outcomes import Task
from detaug.engine.order.schedule import Schedule
from detaug.pipeline.plan import BatchKey

#: A worker that answers within this time (seconds) may be given more than two tasks.
QUICK = 0.005
_USUAL, _MOST = 2, 16


class Place(Protocol):
    """What is looked at of a worker.

    Attributes:
        number: never used twice.
        index: stream-bound streams belong to it.
        tasks: (ticket, task), in the order in which they are made; those whose answers have come are gone.
        since: when the first of them was begun, as far as its answers tell.
    """

    number: int
    index: int
    tasks: deque[tuple[int, Task]]
    since: float

    def task(self) -> int:
        """Which of its tasks it has begun last, where the answers to earlier ones are on their way."""


Worker = TypeVar("Worker", bound=Place)


class Assignments(Generic[Worker]):
    """The tasks that lie at each worker.

    Args:
        schedule: what is to be made.
        num_workers: how many there are to be.
    """

    def __init__(self, schedule: Schedule, num_workers: int) -> None:
        self._schedule = schedule
        # Nobody is given more than a fair share of the window: the others would have nothing to do.
        sharing = num_workers if schedule.stateless else min(num_workers, schedule.busy_workers)
        self._share = -(-schedule.window // max(1, sharing))
        self._tickets = 0
        self._workers: dict[int, Worker] = {}  # by number
        self._by_index: dict[int, Worker] = {}
        self._depths: dict[int, int] = {}  # how many tasks each may have, by number, but for its share
        #: By number: how many each may have; with more than the second it is not given others yet, so that each message
        #: brings several.
        self._limits: dict[int, tuple[int, int]] = {}
        self._buckets: list[dict[int, Worker]] = [{} for _ in range(_MOST)]
        self._bucket_of: dict[int, int] = {}
        self._changed: set[int] = set()  # numbers of the workers that may have got room since tasks were given out
        self._places: dict[BatchKey, tuple[int, Worker]] = {}  # (ticket, worker)
        self._behind: list[
            tuple[BatchKey, int]
        ] = []  # a heap of (key, ticket): given as no worker's first, and others may make them

    @property
    def hungry(self) -> bool:
        """Whether a worker that gets tasks has nothing to do, or will soon have."""
        return bool(self._buckets[0] or self._buckets[1])

    @property
    def may_take_over(self) -> bool:
        """Whether a worker has nothing to do while tasks wait at others that they may begin at any moment."""
        return bool(self._behind and self._buckets[0])

    def join(self, worker: Worker) -> None:
        """It can be given tasks."""
        self._workers[worker.number] = worker
        self._by_index[worker.index] = worker
        self._set_depth(worker, _USUAL)
        self._sort_in(worker, len(worker.tasks))

    def leave(self, worker: Worker) -> None:
        """It is gone; what lay at it lies there no more."""
        self._workers.pop(worker.number, None)
        self._depths.pop(worker.number, None)
        self._limits.pop(worker.number, None)
        self._take_out(worker)
        if self._by_index.get(worker.index) is worker:
            del self._by_index[worker.index]
        for ticket, task in worker.tasks:
            self.forget(ticket, task.key)

    def answered(self, worker: Worker, ticket: int, task: Task | None, seconds: float) -> None:
        """It is done with a task, which took it so long; None: with one that was taken back."""
        if task is not None:
            self.forget(ticket, task.key)
        if worker.number not in self._workers:
            return
        depth = self._depths[worker.number]
        if seconds >= QUICK:
            if depth != _USUAL:
                self._set_depth(worker, _USUAL)
        elif depth < _MOST:
            self._set_depth(worker, depth + 1)
        self._sort_in(worker, len(worker.tasks))

    def rest(self, worker: Worker) -> None:
        """It cannot be given any now."""
        self._take_out(worker)

    def wake(self, worker: Worker) -> None:
        """It can again."""
        if worker.number in self._workers:
            self._sort_in(worker, len(worker.tasks))

    def taken_back(self, worker: Worker, ticket: int, key: BatchKey) -> None:
        """A task that waited there does so no more."""
        self.forget(ticket, key)
        if worker.number in self._workers:
            self._sort_in(worker, len(worker.tasks))

    def waiting_at(self, key: BatchKey) -> tuple[Worker, int] | None:
        """(worker, ticket) where that batch waits to be begun; None if it does not."""
        ticket, worker = self._places.get(key, (0, None))
        return None if worker is None or worker.tasks[worker.task()][0] == ticket else (worker, ticket)

    def give_out(self) -> list[tuple[Worker, list[tuple[int, Task]]]]:
        """What is to be sent to whom: (worker, its new tasks), those without any first."""
        given: dict[int, list[tuple[int, Task]]] = {}
        refilled = self._schedule.take_refilled()
        if self._schedule.stateless:
            while (worker := self._neediest()) is not None:
                if not self._give(worker, given):
                    break
        else:
            changed = {self._by_index[index].number for index in refilled if index in self._by_index} | self._changed
            for number in changed & self._bucket_of.keys():
                while number in self._bucket_of and self._give(self._workers[number], given):
                    pass
        self._changed.clear()
        return self._sent(given)

    def give_all(self) -> list[tuple[Worker, list[tuple[int, Task]]]]:
        """As `give_out`, and however much waits at a worker already: of streams all that is wanted."""
        given: dict[int, list[tuple[int, Task]]] = {}
        for worker in self._workers.values():
            while self._give(worker, given):
                pass
        return self._sent(given)

    def _sent(self, given: dict[int, list[tuple[int, Task]]]) -> list[tuple[Worker, list[tuple[int, Task]]]]:
        sent = [(self._workers[number], entries) for number, entries in given.items() if entries]
        for worker, entries in sent:
            if len(worker.tasks) + len(entries) > self._limits[worker.number][1]:
                self._take_out(worker)
        return sent

    def to_take_over(self, now: float) -> tuple[Worker, int, BatchKey] | None:
        """The lowest task that waits behind one that another worker is still making, if any worker is idle."""
        while self._behind and self._buckets[0]:
            key, ticket = self._behind[0]
            place = self.waiting_at(key)
            if place is None or place[1] != ticket:
                heapq.heappop(self._behind)  # done, taken back, or begun
                continue
            worker = place[0]
            if self._depths[worker.number] > _USUAL and now - worker.since < QUICK:
                return None  # it will have begun it before another could
            return worker, ticket, key
        return None

    def _give(self, worker: Worker, given: dict[int, list[tuple[int, Task]]]) -> bool:
        """Give it a task. False: there is none for it."""
        entries = given.setdefault(worker.number, [])
        task = self._schedule.next_for(worker.index)
        if task is not None:
            self._schedule.start(task.key)
            self._tickets += 1
            if self._schedule.stateless and (worker.tasks or entries):  # a stream's tasks belong to its worker
                heapq.heappush(self._behind, (task.key, self._tickets))
            entries.append((self._tickets, task))
            self._places[task.key] = (self._tickets, worker)
        if len(self._behind) > 2 * len(self._places) + 1000:  # all but a few are done
            self._behind = [each for each in self._behind if self._places.get(each[0], (0,))[0] == each[1]]
            heapq.heapify(self._behind)
        number = len(worker.tasks) + len(entries)
        if number < self._limits[worker.number][0]:
            self._put(worker, number)
        else:
            self._take_out(worker)
        return task is not None

    def _set_depth(self, worker: Worker, depth: int) -> None:
        self._depths[worker.number] = depth
        most = max(_USUAL, min(depth, self._share))
        self._limits[worker.number] = most, most // 2

    def _neediest(self) -> Worker | None:
        for number, bucket in enumerate(self._buckets):
            if bucket:
                # Of those without work the one that was busy last, whose caches are warm; else by turns.
                return self._workers[next(reversed(bucket)) if number == 0 else next(iter(bucket))]
        return None

    def _sort_in(self, worker: Worker, number: int) -> None:
        if number <= self._limits[worker.number][1]:
            self._put(worker, number)
            self._changed.add(worker.number)
        else:
            self._take_out(worker)

    def _put(self, worker: Worker, number: int) -> None:
        before = self._bucket_of.get(worker.number)
        if before is not None:
            del self._buckets[before][worker.number]
        self._buckets[number][worker.number] = worker
        self._bucket_of[worker.number] = number

    def _take_out(self, worker: Worker) -> None:
        number = self._bucket_of.pop(worker.number, None)
        if number is not None:
            del self._buckets[number][worker.number]

    def forget(self, ticket: int, key: BatchKey) -> None:
        """No worker has that batch under that ticket any more."""
        place = self._places.get(key)
        if place is not None and place[0] == ticket:
            del self._places[key]
