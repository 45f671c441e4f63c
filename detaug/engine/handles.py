"""The parent's handles on the helper process and on the workers."""

from __future__ import annotations

import logging
import os
import select
import subprocess
import time
import warnings
from collections import deque
from dataclasses import dataclass, field

from detaug.engine.channel import Channel, ChannelClosed
from detaug.engine.payload import write_payload
from detaug.engine.processes import kill, open_pidfd, run_and_exit, signals_held_back, wait_for_end
from detaug.engine.schedule import Task
from detaug.engine.slots import ParentSlots
from detaug.engine.whereabouts import Whereabouts, is_stopped
from detaug.engine.worker import Job, work_on_inherited
from detaug.engine.zygote import interpreter_command, main_forked, worker_environment
from detaug.pipeline import Pipeline

logger = logging.getLogger("detaug")

#: How long (seconds) the helper may take to kill and reap the workers before it is killed itself.
_QUIT_SECONDS = 2.0


@dataclass
class Worker:
    """One worker process, alive or starting.

    Attributes:
        number: never used twice.
        index: which of the num_processes places it fills; stream-bound streams belong to a place.
        pid: 0 until the helper has started it.
        ready: it has set itself up.
        since: when the batch it is making was begun, or itself was started; this and the following by the monotonic
            clock, in seconds, 0 for never.
        warned: how many seconds had gone when that was last said.
        asked: when it was asked where it is.
        left: when it was found to be leaving: its channel was closed, or it was killed.
        killed: when the helper was told to kill it.
        signalled: the helper has done so.
        leaving: why it was killed.
        batches: how many it has made.
    """

    number: int
    index: int
    channel: Channel
    slots: ParentSlots
    pid: int = 0
    ready: bool = False
    tasks: deque[tuple[int, Task]] = field(default_factory=deque)  # (ticket, task), the one being made first
    since: float = field(default_factory=time.monotonic)
    warned: float = 0.0
    asked: float = 0.0
    left: float = 0.0
    killed: float = 0.0
    signalled: bool = False
    leaving: str = ""
    batches: int = 0
    whereabouts: Whereabouts | None = None

    @property
    def name(self) -> tuple[int, int]:
        """(number, pid), for messages."""
        return self.number, self.pid

    def assign(self, ticket: int, task: Task) -> None:
        """Send it a task.

        Raises:
            ChannelClosed: it is gone.
        """
        given_back, dropped = self.slots.take_returned()
        if not self.tasks:
            self._begin()
        self.tasks.append((ticket, task))
        self.channel.send(("make", ticket, task.key.epoch, task.key.step, task.probe, given_back, dropped))

    def cancel(self, ticket: int) -> None:
        """Take a waiting task back; if the worker has begun it meanwhile, its answer is one that nobody waits for.

        Raises:
            ChannelClosed: it is gone.
        """
        self.tasks = deque(entry for entry in self.tasks if entry[0] != ticket)
        self.channel.send(("cancel", ticket))

    def answered(self, ticket: int) -> Task | None:
        """The task of that ticket, which is done; None if it had been taken back."""
        for entry in self.tasks:
            if entry[0] == ticket:
                self.tasks.remove(entry)
                self._begin()
                self.batches += 1
                return entry[1]
        return None

    def _begin(self) -> None:
        self.since, self.warned, self.asked = time.monotonic(), 0.0, 0.0

    def ask(self) -> None:
        """Make ready for its answer to the question where it is."""
        self.asked = time.monotonic()
        if self.whereabouts is not None:
            self.whereabouts.forget()

    def place(self) -> str:
        """Its answer; empty while there is none."""
        return self.whereabouts.answer() if self.whereabouts is not None else ""

    def close(self) -> None:
        """Give its channel back."""
        self.channel.close()
        if self.whereabouts is not None:
            self.whereabouts.close()
            self.whereabouts = None


@dataclass
class Helper:
    """The helper process.

    Attributes:
        pid, control: the process (0: not yet known) and the channel to it.
        pidfd: readable once it is dead; None where there are no pidfds.
    """

    pid: int
    control: Channel
    pidfd: int | None
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    def start_worker(self, number: int) -> Channel:
        """Ask for a new worker; returns the parent's end of its channel."""
        ours, theirs = Channel.pair()
        try:
            self.control.send(("start", number), theirs.fileno())
        except ChannelClosed:
            ours.close()
            raise
        finally:
            theirs.close()
        return ours

    def fork_spare(self) -> Helper | None:
        """Ask for a spare; its pid comes later. None where there cannot be one."""
        if self.pidfd is None:
            return None
        ours, theirs = Channel.pair()
        try:
            self.control.send(("spare",), theirs.fileno())
        except ChannelClosed:
            ours.close()
            return None
        finally:
            theirs.close()
        return Helper(0, ours, None)

    def spare_started(self, pid: int) -> None:
        """It is there."""
        self.pid, self.pidfd = pid, open_pidfd(pid)

    def is_alive(self) -> bool:
        """Whether it is there, and neither dead nor stopped."""
        if self.pidfd is None or is_stopped(self.pid):
            return False
        waiting = select.poll()
        waiting.register(self.pidfd, select.POLLIN)
        return not waiting.poll(0)

    def signal_worker(self, number: int, which: int) -> None:
        """Send a worker a signal. The helper does it, which knows whether the pid still is that worker's."""
        self.control.send(("signal", number, which))

    def kill(self) -> None:
        """It does not answer. The kernel kills its workers with it."""
        if self.pid:
            kill(self.pid)

    def stop(self) -> None:
        """End it and its workers, and reap it."""
        try:
            self.control.send(("quit",))
        except ChannelClosed:
            pass
        self.control.close()
        if self.pid and not self._wait():
            kill(self.pid)  # the kernel kills its workers with it
            self._wait()
        self._forget()

    def reap(self) -> None:
        """It is dead; take note."""
        self.control.close()
        if self.pid:
            self._wait()
        self._forget()

    def _wait(self) -> bool:
        return wait_for_end(self.pid, _QUIT_SECONDS)

    def _forget(self) -> None:
        if self.pidfd is not None:
            os.close(self.pidfd)
            self.pidfd = None
        if self._process is not None:
            self._process.returncode = 0  # already reaped; its destructor is not to wait


def start_helper(method: str, pipeline: Pipeline, job: Job) -> Helper:
    """Start the helper for "fork", "forkserver" or "spawn"."""
    return _fork_helper(pipeline, job) if method == "fork" else _execute_helper(method, pipeline, job)


def _fork_helper(pipeline: Pipeline, job: Job) -> Helper:
    ours, theirs = Channel.pair()
    parent = os.getpid()
    with warnings.catch_warnings():
        # Python 3.12+ warns of threads at a fork. The helper runs none of the parent's threads' code and takes none of
        # its locks; batchgenerators' augmenters fork at the same place.
        warnings.simplefilter("ignore", DeprecationWarning)
        with signals_held_back():
            pid = os.fork()
            if pid == 0:

                def live() -> None:
                    ours.close()
                    main_forked(theirs, parent, lambda channel: work_on_inherited(channel, pipeline, job))

                run_and_exit(live)
    theirs.close()
    return Helper(pid, ours, open_pidfd(pid))


def _execute_helper(method: str, pipeline: Pipeline, job: Job) -> Helper:
    assert pipeline.frozen is not None
    ours, theirs = Channel.pair()
    payload = write_payload(pipeline.frozen, job)
    code = f"from detaug.engine.zygote import main; main({theirs.fileno()}, {payload}, {os.getpid()}, {method!r})"
    try:
        with signals_held_back():
            process = subprocess.Popen(
                interpreter_command(code),
                pass_fds=(theirs.fileno(), payload),
                stdin=subprocess.DEVNULL,
                env=worker_environment(),
            )
    finally:
        theirs.close()
        os.close(payload)
    return Helper(process.pid, ours, open_pidfd(process.pid), process)
