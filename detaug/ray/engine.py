"""The driver's side of the cluster engine: one thread that hands out tasks and takes in batches.

A batch's way: the thread calls `BatchMaker.make` of an actor → the actor's answer lies in its node's object store → Ray
brings it to this node and tells of it from a thread of its own, which leaves an event → the thread maps the batch and puts it
into the schedule.
"""

from __future__ import annotations

import logging
import queue
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from detaug.engine import failures
from detaug.engine.checking.making import Request
from detaug.engine.checking.second_making import Checking
from detaug.engine.executor import Work
from detaug.engine.order.outcomes import Task
from detaug.engine.prefetching import PrefetchingEngine, given_out
from detaug.ray.actors import Made
from detaug.ray.pool import Actor, ActorPool, first_line

if TYPE_CHECKING:
    from detaug.ray.executor import RayExecutor

logger = logging.getLogger("detaug")

#: The thread looks at the time at least so often (seconds): for actors that wait for CPUs.
_LOOK_EVERY = 0.5


class RayEngine(PrefetchingEngine):
    """Actors for one pipeline, and their batches in order (`detaug.engine.executor.Engine`). This process is connected to the
    cluster."""

    def __init__(self, work: Work, settings: RayExecutor) -> None:
        super().__init__(work, settings.max_restarts)
        self._events: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._tickets = 0
        self._checking = Checking(work.checks, work.on_mismatch, self)
        self._pool: ActorPool = ActorPool(work, settings, self, self._events.put)
        self._begin("detaug-ray")

    # --- the user's thread

    def _wake(self) -> None:
        self._events.put(None)

    def worker_pids(self) -> list[int]:
        """The processes of actors on this node; Ray tells of them once they have set themselves up."""
        return self._pool.pids()

    # --- the engine's thread

    def _turn(self) -> None:
        if self._fatal is None:
            self._assign()
            self._checking.go_on()
        self._tell_what_is_due()
        self._take_events()
        if self._fatal is None:
            self._pool.look(time.monotonic())

    def _take_events(self) -> None:
        with suppress(queue.Empty):
            event = self._events.get(timeout=_LOOK_EVERY)
            while True:
                if event is not None:  # else something has changed that the thread looks at anyway
                    event()
                event = self._events.get_nowait()

    # --- deaths of actors, as the pool tells

    @property
    def has_failed(self) -> bool:
        """Whether there can be no more batches."""
        return self._fatal is not None

    def gone(self, actor: Actor, tasks: list[Task], why: str) -> None:
        """An actor is there no more, and these tasks are open again. `why`: it died at the first of them; empty: no batch is
        to blame."""
        if why:
            self._blame(tasks.pop(0), actor.name, why)
        self._lose(tasks)

    # --- tasks

    def _assign(self) -> None:
        """Give tasks to every actor that has room, this node's first."""
        ready = sorted(self._pool.ready(), key=lambda actor: actor.index)
        with self._lock:
            given = list(given_out(self._schedule, ready))
        for actor, task in given:
            self._tickets += 1
            actor.tasks[self._tickets] = task
            arguments = (*task.key, task.probe, self._state_for(actor.told, task))
            answered, lost = (partial(each, self._tickets) for each in (self._answered, self._lost))
            self._pool.call(actor, "make", arguments, answered, lost)

    def _lost(self, ticket: int, actor: Actor, error: BaseException) -> None:
        """The actor made the batch, and its node's object store lost it."""
        task = actor.tasks.pop(ticket, None)
        if task is None or actor.number not in self._pool.actors:
            return  # it died, and the task is open again already
        what = failures.describe_batch(task.key, self._work.places)
        logger.warning("%s of %s was lost on the way, and is made again: %s", what, actor.name, first_line(str(error)))
        self._lose([task])

    # --- batches

    def _answered(self, ticket: int, actor: Actor, made: Made) -> None:
        task = actor.tasks.pop(ticket)
        self._took(task, made.seconds, made.state)
        for text in made.logs:
            self.say_once(text)
        self._take(task, made.ended, made.error, f"in {actor.name}", made.batch)
        if made.check is not None:
            self._checking.reported(made.check._replace(worker=actor.number))

    # --- the run-time check, see `detaug.engine.checking.second_making.Asks`

    def ask(self, request: Request, worker: int, another: bool) -> bool:
        """See there; `another` is an actor other than the one that made the batch, unless there is no other."""
        actor = self._pool.actors.get(worker)
        if another:
            others = sorted(self._pool.ready(), key=lambda each: (each.number == worker, len(each.tasks), each.index))
            actor = next(iter(others), None)
        if actor is None:
            return False
        checking, who = self._checking, None if another else worker
        self._pool.call(
            actor,
            "answer",
            (request,),
            lambda _actor, done: checking.answered(done[0], done[1], who),
            lambda _actor, _error: checking.give_up() if another else checking.lost(worker),
        )
        return True
