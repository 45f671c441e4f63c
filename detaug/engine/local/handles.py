"""The parent's handles on the helper process and on the workers."""

from __future__ import annotations

import contextlib
import os
import time
import warnings
from collections import deque
from dataclasses import dataclass, field

from detaug.engine.job import WorkerConfig
from detaug.engine.local import messages
from detaug.engine.local.helper import main_forked
from detaug.engine.local.slots import ParentSlots
from detaug.engine.local.worker import work
from detaug.objects.frozen import write_payload
from detaug.pipeline.loader_states import LoaderState
from detaug.pipeline.plan import BatchKey
from detaug.pipeline.producer import Pipeline
from detaug.system.channel import Channel, ChannelClosed
from detaug.system.import_lock import no_imports_elsewhere
from detaug.system.interpreters import InterpreterOptions, code_of
from detaug.system.processes import kill, run_and_exit, signals_held_back, wait_for_end

#: How long (seconds) the helper may take to kill and reap the workers before it is killed itself.
_QUIT_SECONDS = 2.0


@dataclass
class Worker:
    """One worker process, alive or starting. Times are those of the monotonic clock, in seconds, 0
    for never.
    """

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
        # Ahead of the message: if the worker is gone, what it was to make is found among its tasks
        # and made by another. At most two tasks are under way, so the socket has room: a worker
        # that is stopped does not hold up this thread.
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


def fork_helper(pipeline: Pipeline, job: WorkerConfig) -> Helper:
    """Start the helper for "fork"."""
    ours, theirs = Channel.pair()
    parent = os.getpid()
    with warnings.catch_warnings():
        # Python 3.12+ warns of threads at a fork. The helper runs none of the parent's threads'
        # code and takes none of its locks; batchgenerators' augmenters fork at the same place.
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


def execute_helper(
    method: str, pipeline: Pipeline, job: WorkerConfig, surrounding: InterpreterOptions
) -> Helper:
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
