"""The parent's handles on the helper process and on the workers."""

from __future__ import annotations

import contextlib
import os
import time
import warnings
from collections import deque
from dataclasses import dataclass, field
from functools import partial

from detaug.engine.local import messages
from detaug.engine.local.helper import main_forked
from detaug.engine.local.slots import ParentSlots
from detaug.engine.local.worker import run_worker
from detaug.engine.worker_config import WorkerConfig
from detaug.objects.frozen import write_payload
from detaug.pipeline.copying.pipeline_snapshot import PipelineSnapshot
from detaug.pipeline.loader_states import LoaderState
from detaug.pipeline.plan import BatchKey
from detaug.pipeline.producer import Pipeline
from detaug.system.channel import Channel, ChannelClosed
from detaug.system.import_lock import no_imports_elsewhere
from detaug.system.interpreters import InterpreterOptions, code_of
from detaug.system.processes import kill, run_and_exit, signals_held_back, wait_for_end
from detaug.system.threads import thread_pools

#: Seconds that the helper may take to kill and reap the workers before it is killed itself.
_QUIT_SECONDS = 2.0


@dataclass
class Worker:
    """A worker process, running or starting.

    Times are those of the monotonic clock, in seconds; 0: never.

    Attributes:
        worker_id: id of the worker, never used twice in an engine.
        index: index of the worker, 0 ... num_processes - 1. A worker that replaces it has the same
            index, and thereby its streams.
        channel: the parent's end of the channel to it.
        slots: its slots.
        pid: its process id; 0: not known yet.
        ready: True: it has set itself up. False: it is starting.
        tasks: its tasks without a result, in the order in which it makes them.
        num_results: number of its tasks that have a result.
        task_started_at: when the first of its tasks was begun, or it was started itself.
        warned_after: seconds of its task after which the last warning was logged.
        disconnected_at: when its channel was found closed, or it was killed.
        killed_at: when the helper was told to kill it.
        kill_reason: why it was killed; empty: it was not, as far as is known.
        stream_positions: stream → the (epoch, turn) that its copy of the stream gives next.
    """

    worker_id: int
    index: int
    channel: Channel
    slots: ParentSlots
    pid: int = 0
    ready: bool = False
    tasks: deque[BatchKey] = field(default_factory=deque)
    num_results: int = 0
    task_started_at: float = field(default_factory=time.monotonic)
    warned_after: float = 0.0
    disconnected_at: float = 0.0
    killed_at: float = 0.0
    kill_reason: str = ""
    stream_positions: dict[int, tuple[int, int]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The worker's name in messages."""
        if not self.pid:
            return f"worker {self.worker_id}"
        return f"worker {self.worker_id} (pid {self.pid})"

    @property
    def is_busy(self) -> bool:
        """True: it is starting or making a batch. False: it waits for a task."""
        return bool(self.tasks) or not self.ready

    def assign(self, key: BatchKey, state: LoaderState | None) -> None:
        """Send a task to the worker.

        Args:
            key: the batch to make.
            state: a state of its stream's loader shortly before it; None: none is needed.

        Raises:
            ChannelClosed: the worker is gone; the batch is among its tasks nevertheless.
        """
        if not self.tasks:
            self.restart_clock()
        # Before the message: if the worker is gone, the task is found among its tasks and requeued.
        self.tasks.append(key)
        released, dropped = self.slots.collect_returned()
        # A worker has at most two tasks, so the socket has room: a stopped worker does not block
        # this thread.
        self.channel.send(messages.Make(*key, released, dropped, state, self.index))

    def finish_task(self) -> BatchKey:
        """Remove and return its first task, whose result has arrived."""
        self.restart_clock()
        self.num_results += 1
        return self.tasks.popleft()

    def restart_clock(self) -> None:
        """Count the time of its first task from now on."""
        self.task_started_at = time.monotonic()
        self.warned_after = 0.0

    def close(self) -> None:
        """Close its channel and release its free slots."""
        self.channel.close()
        self.slots.close()


@dataclass
class Helper:
    """The helper process, and the channel to it, which is closed once the process is dead."""

    pid: int
    control: Channel

    def start_worker(self, worker_id: int) -> Channel:
        """Request a new worker, and return the parent's end of its channel.

        Raises:
            ChannelClosed: the helper is gone.
        """
        parent_end, worker_end = Channel.pair()
        try:
            self.control.send(messages.Start(worker_id), worker_end.fileno())
        except ChannelClosed:
            parent_end.close()
            raise
        finally:
            worker_end.close()
        return parent_end

    def stop(self) -> None:
        """End the helper and its workers, and reap the helper."""
        with contextlib.suppress(ChannelClosed):
            self.control.send(messages.Quit())
        self.control.close()
        if not wait_for_end(self.pid, _QUIT_SECONDS):
            kill(self.pid)
            wait_for_end(self.pid, _QUIT_SECONDS)


def fork_helper(pipeline: Pipeline, config: WorkerConfig) -> Helper:
    """Start the helper for the start method "fork"."""
    parent_end, helper_end = Channel.pair()
    parent = os.getpid()

    def run_helper() -> None:
        parent_end.close()
        # In the helper, once: its workers inherit it.
        inherited = (pipeline.pristine, config)

        def load() -> tuple[PipelineSnapshot, WorkerConfig]:
            return inherited

        main_forked(helper_end, parent, partial(run_worker, load=load))

    # Here, where it serves every later start of the program as well.
    thread_pools()
    with warnings.catch_warnings():
        # Python 3.12+ warns of threads at a fork. The helper does not run code of the parent's
        # threads and acquires none of their locks; batchgenerators' augmenters fork at the same
        # place.
        warnings.simplefilter("ignore", DeprecationWarning)
        with no_imports_elsewhere(), signals_held_back():
            pid = os.fork()
            if pid == 0:
                run_and_exit(run_helper)
    helper_end.close()
    return Helper(pid, parent_end)


def execute_helper(
    method: str, pipeline: Pipeline, config: WorkerConfig, options: InterpreterOptions
) -> Helper:
    """Start the helper for the start methods "forkserver" and "spawn"."""
    parent_end, helper_end = Channel.pair()
    payload = write_payload(pipeline.freeze(), config)
    code = code_of("detaug.engine.local.helper", helper_end.fileno(), payload, os.getpid(), method)
    try:
        with no_imports_elsewhere(), signals_held_back():
            process = options.start(code, (helper_end.fileno(), payload))
    finally:
        helper_end.close()
        os.close(payload)
    # `Helper.stop` reaps the process. Without a return code Popen's destructor would wait for it.
    process.returncode = 0
    return Helper(process.pid, parent_end)
