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
from detaug.engine.prefetching import PrefetchingEngine
from detaug.ray import nodes
from detaug.ray.actors import Made
from detaug.ray.pool import Actor, ActorPool, first_line

if TYPE_CHECKING:
    from detaug.ray.executor import RayExecutor

logger = logging.getLogger("detaug")

#: Calls that an actor has at a time: one that it is at, and one that waits, so that it loses no time between the two.
_CALLS = 2
#: The thread looks at the time at least so often (seconds): for stalls, for actors that wait for CPUs.
_LOOK_EVERY = 0.5


class RayEngine(PrefetchingEngine):
    """Actors for one pipeline, and their batches in order (`detaug.engine.executor.Engine`). This process is connected to the
    cluster."""

    def __init__(self, work: Work, settings: RayExecutor) -> None:
        super().__init__(work, settings.max_restarts)
        self._settings = settings
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
        self._look_at_the_time()

    def _take_events(self) -> None:
        with suppress(queue.Empty):
            event = self._events.get(timeout=_LOOK_EVERY)
            while True:
                if event is not None:  # else something has changed that the thread looks at anyway
                    event()
                event = self._events.get_nowait()

    def _look_at_the_time(self) -> None:
        if self._fatal is not None:
            return
        self._pool.look(time.monotonic())

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
        # No actor gets a second task before each has its first.
        for calls in range(_CALLS):
            for actor in ready:
                if len(actor.calls) <= calls and not self._give(actor) and self._schedule.stateless:
                    return

    def _give(self, actor: Actor) -> bool:
        """Ask it for a batch. False: there is none to ask for."""
        with self._lock:
            schedule = self._schedule
            task = schedule.next_for(actor.index)
            if task is None:
                return False
            schedule.start(task.key)
        self._tickets += 1
        if not actor.calls:
            actor.since = time.monotonic()
        actor.calls[self._tickets] = task
        arguments = (*task.key, task.probe, self._state_for(actor.told, task))
        ticket = self._tickets
        self._pool.call(actor, "make", arguments, partial(self._answered, ticket), partial(self._lost, ticket))
        return True

    def _lost(self, ticket: int, actor: Actor, error: BaseException) -> None:
        """The actor made the batch, and its node's object store lost it."""
        task = actor.calls.pop(ticket, None)
        if task is None or actor.number not in self._pool.actors:
            return  # it died, and the task is open again already
        what = failures.describe_batch(task.key, self._work.places)
        logger.warning("%s of %s was lost on the way, and is made again: %s", what, actor.name, first_line(str(error)))
        self._lose([task])

    # --- batches

    def _answered(self, ticket: int, actor: Actor, made: Made) -> None:
        task = actor.calls.pop(ticket)
        actor.since = time.monotonic()
        self._took(task, made.seconds, made.state)
        for text in made.logs:
            self.say_once(text)
        where = f"in {actor.name}"
        if made.error is not None and (advice := nodes.advice_on(made.error.summary)):
            where += f". {advice}"
        self._take(task, made.ended, made.error, where, made.batch)
        if made.check is not None:
            self._checking.reported(made.check._replace(worker=actor.number))
        if made.memory is not None:
            self._retire(actor.name, made.memory, self._settings.max_worker_memory)
            self._pool.retire(actor)

    # --- the run-time check, see `detaug.engine.checking.second_making.Asks`

    def ask(self, request: Request, worker: int, another: bool) -> bool:
        """See there; `another` is an actor other than the one that made the batch, unless there is no other."""
        actor = self._pool.actors.get(worker)
        if another:
            others = sorted(self._pool.ready(), key=lambda each: (each.number == worker, len(each.calls), each.index))
            actor = next(iter(others), None)
        if actor is None or actor.leaving:
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
