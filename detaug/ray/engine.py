"""The driver's side of the cluster engine: one thread that starts actors, hands out tasks and takes
in batches.

A batch's way: the thread calls `BatchMaker.make` of an actor → the actor's answer lies in its
node's object store → Ray brings it to this node and tells of it from a thread of its own, which
leaves an event → the thread maps the batch and puts it into the schedule.

An actor's death: every call that was under way fails → the actor is forgotten with the first event,
its tasks are open again, and another actor takes its index; until it is there, others take its
streams over. What a dead actor still has to say is not listened to.
"""

from __future__ import annotations

import logging
import queue
import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import psutil
import ray
from ray import exceptions

from detaug.engine import errors_from_workers as failures
from detaug.engine.executor import EngineContext
from detaug.engine.prefetching_engine import PrefetchingEngine, assign_tasks
from detaug.engine.recheck.rechecker import Recheck
from detaug.engine.recheck.requests import Request
from detaug.pipeline.plan import BatchKey
from detaug.ray import nodes
from detaug.ray.actors import BatchMaker, Reply
from detaug.ray.nodes import NodeReport

logger = logging.getLogger("detaug")

#: The thread looks at the time at least so often (seconds): for actors that wait for CPUs.
_LOOK_EVERY = 0.5
#: An actor that is not there after so many seconds may wait for a place.
_PATIENCE = 20.0
#: How an actor's death is told of.
_DEATHS = (
    exceptions.RayActorError,
    exceptions.OutOfMemoryError,
    exceptions.WorkerCrashedError,
    exceptions.NodeDiedError,
)
#: Actors that fail to start this many times in a row end the run.
_START_FAILURES = 3
#: How long (seconds) the end waits for the actors' processes to end.
_KILL_PATIENCE = 5.0


@dataclass
class Actor:
    """An actor as the driver knows it.

    Attributes:
        number: never used twice.
        index: stream-bound streams belong to it.
        report: from its process; None: it is not there yet.
        tasks: whose answers have not come, in the order in which they are made.
        stream_positions: of each stream that it has a copy of, the (epoch, turn) that the copy
            gives next.
    """

    number: int
    index: int
    handle: Any
    started: float
    report: NodeReport | None = None
    tasks: list[BatchKey] = field(default_factory=list)
    stream_positions: dict[int, tuple[int, int]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """For messages."""
        where = (
            "" if self.report is None else f" (pid {self.report.pid}) on node {self.report.name}"
        )
        return f"actor {self.index}{where}"


class RayEngine(PrefetchingEngine):
    """Actors for one pipeline, and their batches in order (`detaug.engine.executor.Engine`). This
    process is connected to the cluster.
    """

    def __init__(
        self,
        work: EngineContext,
        *,
        num_actors: int,
        num_cpus: float,
        max_restarts: int,
        actor_options: Callable[[str | None], dict[str, Any]],
    ) -> None:
        """Start the thread.

        Args:
            work: the batches to make, and the pipeline that makes them.
            num_actors: actors in all, those of this node included.
            num_cpus: CPUs that each actor reserves.
            max_restarts: actors that one batch may end in a row before `WorkerDied` is raised.
            actor_options: returns Ray's options of an actor; its argument is the id of the only
                node on which it may run, None for any node.
        """
        super().__init__(work, max_restarts)
        self._num_actors = num_actors
        self._num_cpus = num_cpus
        self._actor_options = actor_options
        self._events: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._actors: dict[int, Actor] = {}  # by number
        self._numbers = self._start_failures = 0
        self._checking = Recheck(work.checks, self)
        self._ours = NodeReport.here()
        self._maker = ray.remote(BatchMaker)
        self._shipped = ray.put((work.pipeline.freeze(), work.job))
        self._begin("detaug-ray")

    # --- the user's thread

    def _wake(self) -> None:
        self._events.put(None)

    # --- the engine's thread

    def _turn(self) -> None:
        if self._fatal is None:
            self._assign()
            self._checking.advance()
        self._tell_what_is_due()
        self._take_events()
        if self._fatal is None:
            self._look_for_actors_without_a_place()

    def _take_events(self) -> None:
        with suppress(queue.Empty):
            event = self._events.get(timeout=_LOOK_EVERY)
            while True:
                if event is not None:  # else something has changed that the thread looks at anyway
                    event()
                event = self._events.get_nowait()

    # --- actors

    def _start_workers(self) -> None:
        for index in range(self._num_actors):
            self._start_actor(index)

    def _stop_workers(self) -> None:
        pids = self._pids_here()
        for actor in self._actors.values():
            with suppress(Exception):  # the program may have left the cluster already
                ray.kill(actor.handle)
        self._actors.clear()
        until = time.monotonic() + _KILL_PATIENCE
        while any(map(psutil.pid_exists, pids)) and time.monotonic() < until:
            time.sleep(0.01)

    def _pids_here(self) -> list[int]:
        """Return the processes of those actors of this node that have set themselves up."""
        reports = [actor.report for actor in list(self._actors.values())]
        here = self._ours.node_id
        return [report.pid for report in reports if report is not None and report.node_id == here]

    def _start_actor(self, index: int) -> None:
        self._numbers += 1
        node = self._ours.node_id if index < self._work.num_processes else None
        handle = self._maker.options(**self._actor_options(node)).remote(self._shipped, index)
        actor = self._actors[self._numbers] = Actor(self._numbers, index, handle, time.monotonic())
        self._call(actor, "report", (), partial(self._is_ready, actor), lambda _: None)

    def _is_ready(self, actor: Actor, report: NodeReport) -> None:
        if why := nodes.why_unusable(report, self._ours):
            self.fail(RuntimeError(why))
            return
        if said := nodes.remark(report, self._ours):
            self.warn_once(said)
        actor.report = report
        self._start_failures = 0

    def _ready(self) -> list[Actor]:
        """Those that can be asked for something."""
        return [actor for actor in self._actors.values() if actor.report is not None]

    def _call(
        self,
        actor: Actor,
        method: str,
        arguments: Sequence[Any],
        take: Callable[[Any], None],
        lost: Callable[[BaseException], None],
    ) -> None:
        """Call a method of an actor: `take` is given what it returns, `lost` why it does not, both
        in the engine's thread.
        """

        def took(result: Callable[[], Any]) -> None:
            if actor.number not in self._actors:  # it is dead to us; who asked it is told so
                lost(exceptions.ActorDiedError())
                return
            try:
                answer = result()
            except _DEATHS as error:
                self._died(actor, error)
                lost(error)
            except exceptions.ObjectLostError as error:
                lost(error)
            else:
                take(answer)

        future = getattr(actor.handle, method).remote(*arguments).future()
        # No reference to it is kept but the future's: the batch's memory is given back with the
        # batch.
        future.add_done_callback(lambda done: self._events.put(partial(took, done.result)))

    def _died(self, actor: Actor, error: exceptions.RayError) -> None:
        """Its tasks are open again; another actor takes its place."""
        del self._actors[actor.number]
        self._work.health.restarts += 1
        if self._fatal is not None:
            return
        with suppress(
            Exception
        ):  # one that Ray ended because its node had too little memory may still be there
            ray.kill(actor.handle)
        tasks = list(actor.tasks)
        why = re.sub("\x1b\\[[0-9;]*m", "", str(error)).strip()  # without Ray's colours
        if actor.report is None:
            self._start_failures += 1
            if self._start_failures >= _START_FAILURES:
                text = f"{_START_FAILURES} actors in a row could not start. The last one: {why}"
                self.fail(RuntimeError(text))
                return
        if tasks and actor.report is not None and not _is_gone(actor.report.node_id):
            self._blame(tasks.pop(0), actor.name, _first_line(why))
        else:
            logger.warning("%s is gone, and another takes its place: %s", actor.name, why)
        self._lose(tasks)
        self._start_actor(actor.index)

    def _look_for_actors_without_a_place(self) -> None:
        long_ago, each_wants = time.monotonic() - _PATIENCE, self._num_cpus
        if any(each.report is None and each.started < long_ago for each in self._actors.values()):
            self.warn_once(
                f"of {len(self._actors)} actors some still start, or wait for a place: each wants "
                f"{each_wants:g} CPUs. "
                "Add nodes, or pass fewer num_actors or a smaller num_cpus; until then the others "
                "make all batches"
            )

    # --- tasks and batches

    def _assign(self) -> None:
        """Give tasks to every actor that has room, this node's first."""
        ready = sorted(self._ready(), key=lambda actor: actor.index)
        with self._lock:
            given = list(assign_tasks(self._schedule, ready))
        for actor, key in given:
            actor.tasks.append(key)
            arguments = (*key, self._state_for(actor.stream_positions, key))
            answered = partial(self._answered, actor, key)
            lost = partial(self._lost, actor, key)
            self._call(actor, "make", arguments, answered, lost)

    def _lost(self, actor: Actor, key: BatchKey, error: BaseException) -> None:
        """The actor made the batch, and its node's object store lost it."""
        if actor.number not in self._actors:
            return  # it died, and the task is open again already
        actor.tasks.remove(key)
        what = failures.describe_batch(key, self._work.places)
        logger.warning(
            "%s of %s was lost on the way, and is made again: %s",
            what,
            actor.name,
            _first_line(str(error)),
        )
        self._lose([key])

    def _answered(self, actor: Actor, key: BatchKey, reply: Reply) -> None:
        actor.tasks.remove(key)
        for text, level in reply.logs:
            self.warn_once(text, level)
        self._take(key, reply.made, reply.seconds, f"in {actor.name}", reply.batch)
        if reply.check is not None:
            self._checking.reported(reply.check._replace(worker=actor.number))

    # --- the run-time check, see `detaug.engine.recheck.rechecker.Asks`

    def ask(self, request: Request, worker: int, another: bool) -> bool:
        """See there; `another` is an actor other than the one that made the batch, unless there is
        no other.
        """
        actor = self._actors.get(worker)
        if another:
            others = sorted(
                self._ready(), key=lambda each: (each.number == worker, len(each.tasks), each.index)
            )
            actor = next(iter(others), None)
        if actor is None:
            return False
        checking, who = self._checking, None if another else worker
        self._call(
            actor,
            "answer",
            (request,),
            lambda done: checking.answered(done[0], done[1], who),
            lambda _: checking.give_up() if another else checking.lost(worker),
        )
        return True


def _is_gone(node_id: str) -> bool:
    """Whether the cluster has no such node any more."""
    return not any(node["NodeID"] == node_id and node["Alive"] for node in ray.nodes())  # type: ignore[no-untyped-call]


def _first_line(text: str) -> str:
    """Of an error of Ray's, which goes on for pages."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "no reason was given")
