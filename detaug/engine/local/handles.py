"""The parent's handles on the helper process and on the workers."""

from __future__ import annotations

import contextlib
import logging
import os
import time
import warnings
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import psutil

from detaug.engine.failures import Places, describe_batch
from detaug.engine.job import Job
from detaug.engine.local import messages
from detaug.engine.local.helper import main_forked
from detaug.engine.local.worker import work
from detaug.pipeline.loader_states import LoaderState
from detaug.pipeline.plan import BatchKey
from detaug.pipeline.producer import Pipeline
from detaug.processes.control import kill, run_and_exit, signals_held_back, wait_for_end
from detaug.processes.interpreters import Surrounding, code_of
from detaug.transport.channel import Channel, ChannelClosed
from detaug.transport.frozen import write_payload
from detaug.transport.importing import no_imports_elsewhere
from detaug.transport.slots import ParentSlots

if TYPE_CHECKING:
    from detaug.engine.local.pool import Pool

logger = logging.getLogger("detaug")

#: How long (seconds) the helper may take to kill and reap the workers before it is killed itself.
_QUIT_SECONDS = 2.0
#: A batch that takes longer than this (seconds) is mentioned, and again each time that doubles; so is a worker's start.
SLOW_SECONDS = 60.0
#: A worker may take this long (seconds) to start, whatever `stall_timeout` says: it imports libraries.
SHORTEST_START = 60.0
#: A worker whose channel is closed has this long (seconds) to exit.
_LEAVE_SECONDS = 1.0
#: A killed worker that has not ended after this (seconds) cannot be killed now: it waits in the kernel.
_KILL_SECONDS = 3.0
#: It is looked for them at least so often (seconds).
TICK = 1.0
_STATES = {
    psutil.STATUS_STOPPED: "it is stopped (SIGSTOP; SIGCONT continues it)",
    psutil.STATUS_TRACING_STOP: "a debugger has stopped it",
    psutil.STATUS_DISK_SLEEP: "it waits in the kernel and cannot be interrupted (a stuck file system or disk?)",
}


@dataclass
class Worker:
    """One worker process, alive or starting. Times are those of the monotonic clock, in seconds, 0 for never."""

    number: int  # never used twice
    index: int  # which of the num_processes places it fills; streams belong to a place
    channel: Channel
    slots: ParentSlots
    pid: int = 0
    ready: bool = False  # it has set itself up
    #: The batches whose answers have not come, in the order of their making.
    tasks: deque[BatchKey] = field(default_factory=deque)
    since: float = field(
        default_factory=time.monotonic
    )  # when the batch it is making was begun, or itself was started
    warned: float = 0.0  # elapsed seconds at the last warning
    left: float = 0.0  # when its channel was found closed, or it was killed
    killed: float = 0.0  # when the helper was told to kill it
    leaving: str = ""  # why it was killed
    #: Of each stream that it has a copy of, the (epoch, turn) that the copy gives next.
    stream_positions: dict[int, tuple[int, int]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """For messages."""
        return f"worker {self.number}{f' (pid {self.pid})' if self.pid else ''}"

    @property
    def is_busy(self) -> bool:
        """Whether it is starting or making a batch."""
        return bool(self.tasks) or not self.ready

    def assign(self, key: BatchKey, state: LoaderState | None) -> None:
        """Have it make a batch, from a state of the loader.

        Raises:
            ChannelClosed: It is gone; the batch is among its tasks nevertheless.
        """
        if not self.tasks:
            self.since, self.warned = time.monotonic(), 0.0
        # Ahead of the message: if the worker is gone, what it was to make is found among its tasks and made by another. At most
        # two tasks are under way, so the socket has room: a worker that is stopped does not hold up this thread.
        self.tasks.append(key)
        self.channel.send(messages.Make(*key, *self.slots.take_returned(), state, self.index))

    def answered(self) -> BatchKey:
        """Return its first task, whose answer has come."""
        self.since, self.warned = time.monotonic(), 0.0
        return self.tasks.popleft()

    def close(self) -> None:
        """Give its channel and its free slots back."""
        self.channel.close()
        self.slots.close()


def _forgive(worker: Worker, seconds: float, now: float) -> None:
    """Do not count `seconds` during which this process did not run."""
    worker.since = min(now, worker.since + seconds)
    if worker.killed:
        worker.killed = min(now, worker.killed + seconds)


class StallWatch:
    """Looks for workers that do not answer.

    Args:
        limit: Seconds after which a worker is killed that has been making the same batch, or that
            has been starting (but see `SHORTEST_START`). None: none is.
        pool: Ends workers.
        places: What messages say of batches.
    """

    def __init__(self, limit: float | None, pool: Pool, places: Places) -> None:
        self._limit = limit
        self._pool = pool
        self._places = places
        self._looked = time.monotonic()

    def look(self, workers: Collection[Worker]) -> None:
        """Warn about slow workers, kill stalled ones, and abandon those that cannot be killed."""
        now = time.monotonic()
        since_last = now - self._looked
        # This process was suspended itself (Ctrl-Z, a paused job), and most likely its workers too.
        was_suspended = since_last > 2 * TICK
        for worker in list(workers):
            if was_suspended:
                _forgive(worker, since_last, now)
            elapsed = now - worker.since
            limit = self._limit_of(worker)
            if worker.left:
                self._hurry(worker, now)
            elif limit is not None and elapsed > limit:
                self._kill(worker, now, limit)
            elif worker.is_busy and elapsed > max(SLOW_SECONDS, 2 * worker.warned):
                self._warn(worker, elapsed)
        self._looked = time.monotonic()

    def _limit_of(self, worker: Worker) -> float | None:
        """Return how long (seconds) what the worker is doing may take; None: any time."""
        if self._limit is None or not worker.is_busy:
            return None
        if worker.ready:
            return self._limit
        return max(self._limit, SHORTEST_START)

    def _kill(self, worker: Worker, now: float, limit: float) -> None:
        if worker.ready:
            reasons = [f"killed: it made no progress for {limit:g} s", *_state_of(worker.pid)]
        else:
            reasons = [f"killed: it had not started after {limit:g} s"]
        worker.leaving = "; ".join(reasons)
        worker.left = now
        worker.killed = now
        self._pool.kill(worker)

    def _warn(self, worker: Worker, elapsed: float) -> None:
        worker.warned = elapsed
        if worker.tasks:
            activity = f"making {describe_batch(worker.tasks[0], self._places)}"
            hints = _state_of(worker.pid) or [f"py-spy dump --pid {worker.pid} shows where it is"]
        else:
            activity = "starting"
            hints = []
        message = [f"{worker.name} has been {activity} for {elapsed:.0f} s", *hints]
        logger.warning("%s", "; ".join(message))

    def _hurry(self, worker: Worker, now: float) -> None:
        if worker.killed:
            if now - worker.killed > _KILL_SECONDS:
                self._pool.abandon(worker)
        elif now - worker.left > _LEAVE_SECONDS:
            worker.killed = now
            self._pool.kill(worker)


def _state_of(pid: int) -> list[str]:
    """What the kernel says of a process that does not answer; nothing where that explains nothing."""
    with contextlib.suppress(OSError, psutil.Error):
        status = psutil.Process(pid).status()
        return [what for of, what in _STATES.items() if of == status]
    return []


@dataclass
class Helper:
    """The helper process, and the channel to it, which is closed once it is dead."""

    pid: int
    control: Channel

    def start_worker(self, number: int) -> Channel:
        """Ask for a new worker; returns the parent's end of its channel."""
        ours, theirs = Channel.pair()
        try:
            self.control.send(messages.Start(number), theirs.fileno())
        except ChannelClosed:
            ours.close()
            raise
        finally:
            theirs.close()
        return ours

    def stop(self) -> None:
        """End it and its workers, and reap it."""
        with contextlib.suppress(ChannelClosed):
            self.control.send(messages.Quit())
        self.control.close()
        if not wait_for_end(self.pid, _QUIT_SECONDS):
            kill(self.pid)
            wait_for_end(self.pid, _QUIT_SECONDS)


def fork_helper(pipeline: Pipeline, job: Job) -> Helper:
    """Start the helper for "fork"."""
    ours, theirs = Channel.pair()
    parent = os.getpid()
    with warnings.catch_warnings():
        # Python 3.12+ warns of threads at a fork. The helper runs none of the parent's threads' code and takes none of
        # its locks; batchgenerators' augmenters fork at the same place.
        warnings.simplefilter("ignore", DeprecationWarning)
        with no_imports_elsewhere(), signals_held_back():
            pid = os.fork()
            if pid == 0:

                def live() -> None:
                    ours.close()
                    inherited = pipeline.pristine, job
                    main_forked(theirs, parent, lambda channel: work(channel, lambda: inherited))

                run_and_exit(live)
    theirs.close()
    return Helper(pid, ours)


def execute_helper(method: str, pipeline: Pipeline, job: Job, surrounding: Surrounding) -> Helper:
    """Start the helper for "forkserver" or "spawn"."""
    ours, theirs = Channel.pair()
    payload = write_payload(pipeline.freeze(), job)
    code = code_of("detaug.engine.local.helper", theirs.fileno(), payload, os.getpid(), method)
    try:
        with no_imports_elsewhere(), signals_held_back():
            process = surrounding.start(code, (theirs.fileno(), payload))
    finally:
        theirs.close()
        os.close(payload)
    process.returncode = 0  # `stop` reaps it; its destructor is not to wait
    return Helper(process.pid, ours)
