"""Which worker gets which tasks: decided here and sent elsewhere, without processes or clocks.

Invariants:
- A worker has one task that it is making and at most one waiting, so that no time is lost between the two. It makes them
  in the order in which it was given them; the second can be withdrawn until it is begun.
- `_room` holds the workers that can be given a task, by the number of tasks they have.
"""

from __future__ import annotations

from collections import deque
from typing import Generic, Protocol, TypeVar

from detaug.engine.order.outcomes import Task
from detaug.engine.order.schedule import Schedule
from detaug.pipeline.plan import BatchKey


class Place(Protocol):
    """What is looked at of a worker.

    Attributes:
        number: never used twice.
        index: stream-bound streams belong to it.
        tasks: (ticket, task), in the order in which they are made; those whose answers have come are gone.
    """

    number: int
    index: int
    tasks: deque[tuple[int, Task]]

    def task(self) -> int:
        """Which of its tasks it has begun last, where the answers to earlier ones are on their way."""


Worker = TypeVar("Worker", bound=Place)


class Assignments(Generic[Worker]):
    """The tasks of each worker.

    Args:
        schedule: what is to be made.
        num_workers: how many there are to be.
    """

    def __init__(self, schedule: Schedule, num_workers: int) -> None:
        self._schedule = schedule
        self._num_workers = num_workers
        self._tickets = 0
        self._workers: dict[int, Worker] = {}  # by number
        self._room: tuple[dict[int, Worker], dict[int, Worker]] = ({}, {})  # workers with no task, with one; by number
        self._places: dict[BatchKey, tuple[int, Worker]] = {}  # (ticket, worker)

    def join(self, worker: Worker) -> None:
        """It can be given tasks."""
        self._workers[worker.number] = worker
        self._sort_in(worker, len(worker.tasks))

    def leave(self, worker: Worker) -> None:
        """It is gone, and has no tasks any more."""
        self._workers.pop(worker.number, None)
        self.rest(worker)
        for ticket, task in worker.tasks:
            self.forget(ticket, task.key)

    def rest(self, worker: Worker) -> None:
        """It cannot be given any now."""
        for room in self._room:
            room.pop(worker.number, None)

    def wake(self, worker: Worker) -> None:
        """It may have room again."""
        if worker.number in self._workers:
            self._sort_in(worker, len(worker.tasks))

    def done(self, worker: Worker, ticket: int, key: BatchKey) -> None:
        """A task of its is answered, or was withdrawn."""
        self.forget(ticket, key)
        self.wake(worker)

    def waiting_at(self, key: BatchKey) -> tuple[Worker, int] | None:
        """(worker, ticket) where that batch waits to be begun; None if it does not."""
        ticket, worker = self._places.get(key, (0, None))
        return None if worker is None or worker.tasks[worker.task()][0] == ticket else (worker, ticket)

    def give_out(self) -> list[tuple[Worker, list[tuple[int, Task]]]]:
        """What is to be sent to whom: (worker, its new tasks). No worker gets a second task before each has its first."""
        given: dict[int, list[tuple[int, Task]]] = {}
        for room in self._room:
            for worker in list(room.values()):
                if room is self._room[1] and self._schedule.stateless and self._schedule.num_open <= self._missing:
                    break  # what is left is for workers that have yet to join, each of which begins it at once
                task = self._schedule.next_for(worker.index)
                if task is None:
                    if self._schedule.stateless:
                        break  # nor is there one for any other
                    continue
                self._schedule.start(task.key)
                self._tickets += 1
                self._places[task.key] = (self._tickets, worker)
                entries = given.setdefault(worker.number, [])
                entries.append((self._tickets, task))
                self._sort_in(worker, len(worker.tasks) + len(entries))
        return [(self._workers[number], entries) for number, entries in given.items()]

    @property
    def _missing(self) -> int:
        return self._num_workers - len(self._workers)

    def _sort_in(self, worker: Worker, number: int) -> None:
        self.rest(worker)
        if number < len(self._room):
            self._room[number][worker.number] = worker

    def forget(self, ticket: int, key: BatchKey) -> None:
        """No worker has that batch under that ticket any more."""
        place = self._places.get(key)
        if place is not None and place[0] == ticket:
            del self._places[key]
