"""The driver's side of the cluster engine: one thread assigns tasks and takes in batches.

The way of a batch: the thread calls `BatchMaker.make` of an actor → the actor's reply is in its
node's object store → Ray brings it to this node, and a thread of Ray adds an event → the engine's
thread maps the batch and records it in the schedule.

The death of an actor: every pending call fails → with the first of these events the actor is
forgotten, its tasks are open again, and another actor gets its index. Until that one is ready,
other actors take over the streams. Later events of a dead actor are ignored.
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
from detaug.engine.recheck.requests import Request, Response
from detaug.pipeline.plan import BatchKey
from detaug.ray import nodes
from detaug.ray.actors import BatchMaker, Reply
from detaug.ray.nodes import NodeReport

logger = logging.getLogger("detaug")

#: Seconds after which the thread looks at the time, at the latest: for actors that wait for CPUs.
_LOOK_EVERY = 0.5
#: Seconds. An actor that has not started by then may be waiting for CPUs.
_PATIENCE = 20.0
#: The errors by which Ray reports the death of an actor.
_DEATHS = (
    exceptions.RayActorError,
    exceptions.OutOfMemoryError,
    exceptions.WorkerCrashedError,
    exceptions.NodeDiedError,
)
#: Actors that fail to start this many times in a row end the run.
_START_FAILURES = 3
#: Seconds that `close` waits for the processes of actors to end.
_KILL_PATIENCE = 5.0
#: Seconds between two looks at these processes.
_KILL_POLL_SECONDS = 0.01
_COLOURS = re.compile("\x1b\\[[0-9;]*m")


@dataclass
class Actor:
    """An actor as the driver knows it.

    Attributes:
        actor_id: id of the actor, never used twice in an engine.
        index: index of the actor. An actor that replaces it has the same index, and thereby its
            streams.
        handle: Ray's handle.
        started_at: when it was started, by the monotonic clock in seconds.
        report: the report of its process; None: it is starting.
        tasks: its tasks without a result, in the order in which it makes them.
        stream_positions: stream → the (epoch, turn) that its copy of the stream gives next.
    """

    actor_id: int
    index: int
    handle: Any
    started_at: float
    report: NodeReport | None = None
    tasks: list[BatchKey] = field(default_factory=list)
    stream_positions: dict[int, tuple[int, int]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The actor's name in messages."""
        if self.report is None:
            return f"actor {self.index}"
        return f"actor {self.index} (pid {self.report.pid}) on node {self.report.name}"


def _ignore(_: Any) -> None:
    """Do nothing: the loss of this call has no consequence of its own."""


class RayEngine(PrefetchingEngine):
    """The engine with actors of a Ray cluster, to which this process is connected.

    Args:
        context: the batches to make, and the pipeline that makes them.
        num_actors: number of actors, including those of this node.
        num_cpus: CPUs that each actor reserves.
        max_restarts: number of actors in a row that one batch may end before `WorkerDied` is
            raised.
        actor_options: returns Ray's options of an actor; its argument is the id of the only node on
            which the actor may run, or None for any node.
    """

    def __init__(
        self,
        context: EngineContext,
        *,
        num_actors: int,
        num_cpus: float,
        max_restarts: int,
        actor_options: Callable[[str | None], dict[str, Any]],
    ) -> None:
        super().__init__(context, max_restarts)
        self._num_actors = num_actors
        self._num_cpus = num_cpus
        self._actor_options = actor_options
        #: Functions for the engine's thread to call; None only wakes it.
        self._events: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        #: By id.
        self._actors: dict[int, Actor] = {}
        self._last_actor_id = 0
        self._start_failures = 0
        self._recheck = Recheck(context.recheck_policy, self)
        self._own_node = NodeReport.here()
        self._actor_class = ray.remote(BatchMaker)
        self._shipped = ray.put((context.pipeline.freeze(), context.worker_config))
        self._begin("detaug-ray")

    # --- implements `PrefetchingEngine`

    def _wake(self) -> None:
        self._events.put(None)

    def _run_once(self) -> None:
        if self._fatal is None:
            self._assign()
            self._recheck.advance()
        self._wake_user_if_due()
        self._handle_events()
        if self._fatal is None:
            self._warn_of_waiting_actors()

    def _handle_events(self) -> None:
        """Wait for an event, and handle all that have arrived."""
        with suppress(queue.Empty):
            event = self._events.get(timeout=_LOOK_EVERY)
            while True:
                if event is not None:
                    event()
                event = self._events.get_nowait()

    def _start_workers(self) -> None:
        for index in range(self._num_actors):
            self._start_actor(index)

    def _stop_workers(self) -> None:
        # Read before the actors are forgotten: `close` waits until these processes have ended.
        pids = self._pids_here()
        for actor in self._actors.values():
            # The program may have disconnected from the cluster already.
            with suppress(Exception):
                ray.kill(actor.handle)
        self._actors.clear()
        deadline = time.monotonic() + _KILL_PATIENCE
        while any(map(psutil.pid_exists, pids)) and time.monotonic() < deadline:
            time.sleep(_KILL_POLL_SECONDS)

    # --- actors

    def _pids_here(self) -> list[int]:
        """Return the processes of this node's actors that have started."""
        pids = []
        for actor in list(self._actors.values()):
            report = actor.report
            if report is not None and report.node_id == self._own_node.node_id:
                pids.append(report.pid)
        return pids

    def _start_actor(self, index: int) -> None:
        self._last_actor_id += 1
        actor_id = self._last_actor_id
        # The first `num_processes` actors run on this node.
        node_id = None
        if index < self._context.num_processes:
            node_id = self._own_node.node_id
        options = self._actor_options(node_id)
        handle = self._actor_class.options(**options).remote(self._shipped, index)
        actor = Actor(actor_id, index, handle, time.monotonic())
        self._actors[actor_id] = actor
        # If the call fails, `_on_actor_died` replaces the actor.
        self._call(actor, "report", (), partial(self._on_started, actor), _ignore)

    def _on_started(self, actor: Actor, report: NodeReport) -> None:
        # Checked before it gets a task, because no batch of an unusable actor may reach the user.
        reason = nodes.why_unusable(report, self._own_node)
        if reason:
            self.fail(RuntimeError(reason))
            return
        remark = nodes.remark(report, self._own_node)
        if remark:
            self.warn_once(remark)
        actor.report = report
        self._start_failures = 0

    def _ready_actors(self) -> list[Actor]:
        """Return the actors that have started."""
        return [actor for actor in self._actors.values() if actor.report is not None]

    def _call(
        self,
        actor: Actor,
        method: str,
        arguments: Sequence[Any],
        on_return: Callable[[Any], None],
        on_loss: Callable[[BaseException], None],
    ) -> None:
        """Call a method of an actor; the engine's thread handles what comes of it.

        Args:
            actor: the actor.
            method: the method's name.
            arguments: the method's arguments.
            on_return: called with the returned value.
            on_loss: called with the reason if there will be no value.
        """

        def on_done(get_value: Callable[[], Any]) -> None:
            # The actor was forgotten with an earlier event.
            if actor.actor_id not in self._actors:
                on_loss(exceptions.ActorDiedError())
                return
            try:
                value = get_value()
            except _DEATHS as error:
                self._on_actor_died(actor, error)
                on_loss(error)
            except exceptions.ObjectLostError as error:
                on_loss(error)
            else:
                on_return(value)

        def add_event(done: Any) -> None:
            self._events.put(partial(on_done, done.result))

        future = getattr(actor.handle, method).remote(*arguments).future()
        # Only the future refers to the value: the batch's memory is released with the batch.
        future.add_done_callback(add_event)

    def _on_actor_died(self, actor: Actor, error: exceptions.RayError) -> None:
        """Requeue the tasks of a dead actor, and start another one in its place."""
        del self._actors[actor.actor_id]
        self._context.run_stats.restarts += 1
        # After a failure of the engine nobody asks for batches any more.
        if self._fatal is not None:
            return
        # An actor that Ray has ended because its node had too little memory may still be running.
        with suppress(Exception):
            ray.kill(actor.handle)
        tasks = list(actor.tasks)
        reason = _COLOURS.sub("", str(error)).strip()
        if actor.report is None:
            self._start_failures += 1
            if self._start_failures >= _START_FAILURES:
                text = f"{_START_FAILURES} actors in a row could not start. The last one: {reason}"
                self.fail(RuntimeError(text))
                return
        # The task that was running is to blame, unless the whole node is gone.
        if tasks and actor.report is not None and not _is_gone(actor.report.node_id):
            self._on_task_crashed(tasks.pop(0), actor.name, _first_line(reason))
        else:
            logger.warning("%s is gone, and another takes its place: %s", actor.name, reason)
        self._requeue(tasks)
        self._start_actor(actor.index)

    def _warn_of_waiting_actors(self) -> None:
        """Warn once if actors have been starting for long, which may be for lack of CPUs."""
        long_ago = time.monotonic() - _PATIENCE
        if any(
            actor.report is None and actor.started_at < long_ago for actor in self._actors.values()
        ):
            self.warn_once(
                f"of {len(self._actors)} actors some still start, or wait for a place: each wants"
                f" {self._num_cpus:g} CPUs. Add nodes, or pass fewer num_actors or a smaller"
                " num_cpus; until then the others make all batches"
            )

    # --- tasks and batches

    def _assign(self) -> None:
        """Assign open tasks to the actors that have room for them, to this node's first."""
        # This node's actors have the lowest indices, and their batches need no network.
        actors = sorted(self._ready_actors(), key=lambda actor: actor.index)
        with self._lock:
            assignments = list(assign_tasks(self._schedule, actors))
        for actor, key in assignments:
            # Before the call: if the actor is dead, the task is found among its tasks.
            actor.tasks.append(key)
            arguments = (*key, self._state_for(actor.stream_positions, key))
            on_return = partial(self._on_reply, actor, key)
            on_loss = partial(self._on_reply_lost, actor, key)
            self._call(actor, "make", arguments, on_return, on_loss)

    def _on_reply_lost(self, actor: Actor, key: BatchKey, error: BaseException) -> None:
        """Requeue a task whose batch was made, but lost by its node's object store."""
        # A dead actor's tasks have been requeued already.
        if actor.actor_id not in self._actors:
            return
        actor.tasks.remove(key)
        batch = failures.describe_batch(key, self._context.locator)
        logger.warning(
            "%s of %s was lost on the way, and is made again: %s",
            batch,
            actor.name,
            _first_line(str(error)),
        )
        self._requeue([key])

    def _on_reply(self, actor: Actor, key: BatchKey, reply: Reply) -> None:
        """Take in the result of a task."""
        actor.tasks.remove(key)
        for text, level in reply.logs:
            self.warn_once(text, level)
        self._take_result(key, reply.result, reply.seconds, f"in {actor.name}", reply.batch)
        if reply.candidate is not None:
            self._recheck.on_candidate(reply.candidate._replace(worker=actor.actor_id))

    # --- implements `RecheckTransport`

    def send_request(self, request: Request, worker_id: int, *, to_checker: bool) -> bool:
        """Send a request of the recheck to an actor.

        The checker is any other actor than the one that made the batch. If there is no other, it is
        that one.
        """
        if to_checker:
            return self._send_to_checker(request, worker_id)
        actor = self._actors.get(worker_id)
        if actor is None:
            return False

        def on_return(reply: tuple[Response, float]) -> None:
            response, seconds = reply
            self._recheck.on_response(response, seconds, worker_id)

        def on_loss(_: BaseException) -> None:
            self._recheck.on_worker_gone(worker_id)

        self._call(actor, "answer", (request,), on_return, on_loss)
        return True

    def _send_to_checker(self, request: Request, worker_id: int) -> bool:
        actors = self._ready_actors()
        if not actors:
            return False
        checker = min(
            actors,
            key=lambda actor: (actor.actor_id == worker_id, len(actor.tasks), actor.index),
        )

        def on_return(reply: tuple[Response, float]) -> None:
            response, seconds = reply
            self._recheck.on_response(response, seconds, None)

        def on_loss(_: BaseException) -> None:
            self._recheck.cancel_check()

        self._call(checker, "answer", (request,), on_return, on_loss)
        return True


def _is_gone(node_id: str) -> bool:
    """Return whether the cluster has lost a node."""
    for node in ray.nodes():  # type: ignore[no-untyped-call]
        if node["NodeID"] == node_id and node["Alive"]:
            return False
    return True


def _first_line(text: str) -> str:
    """Return the first line of an error of Ray, whose text may have pages."""
    for line in text.splitlines():
        if line.strip():
            return line.strip()
    return "no reason was given"
