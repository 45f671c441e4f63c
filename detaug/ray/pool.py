"""The actors, started, watched and replaced.

An actor's death: every call that was under way fails → the actor is forgotten with the first event, its tasks are open again,
and another actor takes its index (streams belong to indices). What a dead actor still has to say is not listened to.
"""

from __future__ import annotations

import contextlib
import logging
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import psutil
import ray
from ray import exceptions

from detaug.engine.executor import Work
from detaug.engine.order.outcomes import Task
from detaug.ray import nodes
from detaug.ray.actors import BatchMaker
from detaug.ray.nodes import NodeReport

if TYPE_CHECKING:
    from detaug.ray.engine import RayEngine
    from detaug.ray.executor import RayExecutor

logger = logging.getLogger("detaug")

#: An actor that is not there after so many seconds may wait for a place; the head is then asked for the cluster's free CPUs, at
#: most so often.
_PATIENCE, _ASK_EVERY = 20.0, 5.0
#: How an actor's death is told of.
_DEATHS = (
    exceptions.RayActorError,
    exceptions.OutOfMemoryError,
    exceptions.WorkerCrashedError,
    exceptions.NodeDiedError,
)
#: Actors that fail to start this many times in a row end the run.
_START_FAILURES = 3
#: How long (seconds) `stop` waits for the actors' processes to end.
_KILL_PATIENCE = 5.0


@dataclass
class Actor:
    """An actor as the driver knows it.

    Attributes:
        number: never used twice.
        index: stream-bound streams belong to it.
        report: from its process; None: it is not there yet.
        tasks: that of each call that is under way, by ticket, in the order in which they were made.
        told: the generation of loader states that each stream was told of.
    """

    number: int
    index: int
    handle: Any
    started: float
    report: NodeReport | None = None
    tasks: dict[int, Task] = field(default_factory=dict)
    told: dict[int, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """For messages."""
        where = "" if self.report is None else f" (pid {self.report.pid}) on node {self.report.name}"
        return f"actor {self.index}{where}"


class ActorPool:
    """Starts actors, watches them, and replaces them (`actors`, by number). All of it runs in the engine's thread, or before that
    is started; `post` has that thread call a function."""

    def __init__(
        self, work: Work, settings: RayExecutor, engine: RayEngine, post: Callable[[Callable[[], None]], None]
    ) -> None:
        self.actors: dict[int, Actor] = {}
        self._work = work
        self._settings = settings
        self._engine = engine
        self._post = post
        self._ours = NodeReport.here()
        self._numbers = 0
        self._start_failures = 0
        self._ask_again = float("-inf")  # when to ask for free CPUs; never once it was said that they are missing
        self._maker = ray.remote(BatchMaker)
        self._shipped = ray.put((work.pipeline.freeze(), work.job))
        self._num_local = work.num_processes  # whose indices come first

    def start(self) -> None:
        """Ask for all actors."""
        for index in range(self._settings.num_workers(self._work.num_processes)):
            self._start_actor(index)

    def stop(self) -> None:
        """End all of them."""
        pids = self.pids()
        for actor in self.actors.values():
            with contextlib.suppress(Exception):  # the program may have left the cluster already
                ray.kill(actor.handle)
        self.actors.clear()
        until = time.monotonic() + _KILL_PATIENCE
        while any(map(psutil.pid_exists, pids)) and time.monotonic() < until:
            time.sleep(0.01)

    def pids(self) -> list[int]:
        """The processes of actors on this node; Ray tells of them once they have set themselves up."""
        return [
            actor.report.pid
            for actor in list(self.actors.values())
            if actor.report is not None and actor.report.node_id == self._ours.node_id
        ]

    def ready(self) -> list[Actor]:
        """Those that can be asked for something."""
        return [actor for actor in self.actors.values() if actor.report is not None]

    def call(
        self,
        actor: Actor,
        method: str,
        arguments: Sequence[Any],
        take: Callable[[Actor, Any], None],
        lost: Callable[[Actor, BaseException], None],
    ) -> None:
        """Call a method of an actor: `take` is given what it returns, `lost` why it does not, both in the engine's thread."""
        future = getattr(actor.handle, method).remote(*arguments).future()
        # No reference to it is kept but the future's: the batch's memory is given back with the batch.
        future.add_done_callback(lambda done: self._post(partial(self._answered, actor, take, lost, done.result)))

    def _answered(
        self,
        actor: Actor,
        take: Callable[[Actor, Any], None],
        lost: Callable[[Actor, BaseException], None],
        result: Callable[[], Any],
    ) -> None:
        """`result` gives what a call has returned, or raises why it does not."""
        if actor.number not in self.actors:  # it is dead to us; who asked it is told so
            lost(actor, exceptions.ActorDiedError())
            return
        try:
            answer = result()
        except _DEATHS as error:
            self._died(actor, error)
            lost(actor, error)
        except exceptions.ObjectLostError as error:
            lost(actor, error)
        else:
            take(actor, answer)

    def look(self, now: float) -> None:
        """Say what actors wait for."""
        long_ago = now - _PATIENCE
        late = any(each.report is None and each.started < long_ago for each in self.actors.values())
        if late and now > self._ask_again:
            self._ask_again = now + _ASK_EVERY
            self._say_what_is_missing()

    def _start_actor(self, index: int) -> None:
        self._numbers += 1
        node = self._ours.node_id if index < self._num_local else None
        handle = self._maker.options(**self._settings.options(node)).remote(self._shipped, index)
        actor = self.actors[self._numbers] = Actor(self._numbers, index, handle, time.monotonic())
        self.call(actor, "report", (), self._is_ready, lambda _actor, _error: None)

    def _is_ready(self, actor: Actor, report: NodeReport) -> None:
        if why := nodes.why_unusable(report, self._ours):
            self._engine.fail(RuntimeError(why))
            return
        if said := nodes.remark(report, self._ours):
            self._engine.say_once(said)
        actor.report = report
        self._start_failures = 0

    def _died(self, actor: Actor, error: exceptions.RayError) -> None:
        """Its tasks are open again; another actor takes its place."""
        del self.actors[actor.number]
        self._work.health.restarts += 1
        if self._engine.has_failed:
            return
        tasks = list(actor.tasks.values())
        why = re.sub("\x1b\\[[0-9;]*m", "", str(error)).strip()  # without Ray's colours
        with contextlib.suppress(
            Exception
        ):  # one that Ray ended because its node had too little memory may still be there
            ray.kill(actor.handle)
        if actor.report is None:
            self._start_failures += 1
            if self._start_failures >= _START_FAILURES:
                self._engine.fail(
                    RuntimeError(f"{_START_FAILURES} actors in a row could not start. The last one: {why}")
                )
                return
        blames = tasks and actor.report is not None and not _is_gone(actor.report.node_id)
        if not blames:
            logger.warning("%s is gone, and another takes its place: %s", actor.name, why)
        self._engine.gone(actor, tasks, first_line(why) if blames else "")
        self._start_actor(actor.index)

    def _say_what_is_missing(self) -> None:
        number = sum(actor.report is None for actor in self.actors.values())
        free = ray.available_resources().get("CPU", 0.0)  # type: ignore[no-untyped-call]
        if free >= self._settings.num_cpus:
            return  # they are starting
        self._ask_again = float("inf")
        self._engine.say_once(
            f"{number} of {len(self.actors)} actors wait for a place: each wants {self._settings.num_cpus:g} CPUs, and {free:g} "
            "of the cluster's are free. Add nodes, or pass fewer num_actors or a smaller num_cpus; the others go on, but streams "
            "of a loader that keeps state wait for their own actor"
        )


def _is_gone(node_id: str) -> bool:
    """Whether the cluster has no such node any more."""
    return not any(node["NodeID"] == node_id and node["Alive"] for node in ray.nodes())  # type: ignore[no-untyped-call]


def first_line(text: str) -> str:
    """Of an error of Ray's, which goes on for pages."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "no reason was given")
