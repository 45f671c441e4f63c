"""The helper process, from which every worker is started.

It has a single thread, and the state that the parent had when the augmenter started. It forks
workers (start method "fork": it is itself an early fork of the parent; "forkserver": it is a fresh
interpreter) or executes new interpreters ("spawn"). A worker that is started later, because another
died, therefore never inherits the parent's later state, its threads or its CUDA context. The helper
also reaps workers and reports how they ended. When the parent is gone, for whatever reason, the
helper exits, and the kernel kills the workers with it.

Processes that a dead worker's loader had started (a pool, a program) become the helper's children,
and are killed.

Standard library and psutil only: a helper for "spawn" starts in milliseconds.
"""

from __future__ import annotations

import errno
import os
import select
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from detaug.engine.local import messages
from detaug.system.channel import Channel, ChannelClosed
from detaug.system.import_lock import continue_importing
from detaug.system.interpreters import InterpreterOptions, code_of
from detaug.system.limits import explained
from detaug.system.processes import (
    adopt_orphans,
    die_with,
    kill,
    kill_orphans,
    leave_signals_to_the_parent,
    open_pidfd,
    renew_standard_streams,
    run_and_exit,
    signals_held_back,
    wait_for_end,
)

#: Starts a worker and returns its pid. Its arguments are the helper's own channel, and the
#: descriptor of the worker's end of its channel.
Launcher = Callable[[Channel, int], int]

#: Seconds between two looks at processes that have no pidfd.
_POLL_SECONDS = 0.2
#: Seconds in which killed workers have to end before the helper exits.
_END_SECONDS = 2.0


class _Worker(NamedTuple):
    """A worker as the helper knows it; without a `pidfd` where the system has none."""

    worker_id: int
    pidfd: int | None


class _Helper:
    """The loop of the helper process.

    Args:
        control: the channel to the parent.
        parent: the parent's pid.
        launch: starts a worker.
    """

    def __init__(self, control: Channel, parent: int, launch: Launcher) -> None:
        self._control = control
        self._parent = parent
        self._launch = launch
        #: By pid.
        self._workers: dict[int, _Worker] = {}
        self._poll = select.poll()
        self._poll.register(control, select.POLLIN)
        self._parent_pidfd = open_pidfd(parent)
        if self._parent_pidfd is not None:
            self._poll.register(self._parent_pidfd, select.POLLIN)

    def run(self) -> None:
        """Handle the parent's messages until it sends `Quit` or is gone; then end the workers."""
        adopt_orphans()
        try:
            while True:
                events = self._poll.poll(self._poll_timeout())
                if self._parent_is_gone(events):
                    return
                # Before the parent's messages: SIGKILL then goes only to a pid that is still its
                # worker's, because the kernel does not use a pid again before it is reaped.
                self._reap()
                if not self._handle_messages():
                    return
        except ChannelClosed:
            pass
        finally:
            self._end_workers()

    def _poll_timeout(self) -> float | None:
        """Return the milliseconds to wait for events; None: any time, as all ends are events."""
        pidfds = [worker.pidfd for worker in self._workers.values()]
        if self._parent_pidfd is None or None in pidfds:
            return _POLL_SECONDS * 1000
        return None

    def _handle_messages(self) -> bool:
        """Handle the messages that have arrived; False: the parent wants the helper to quit."""
        # One at a time: a worker that is started would inherit the descriptors that came with the
        # later messages. But all of them: `poll` does not return for messages that the channel has
        # read from its socket already.
        while True:
            arrived = self._control.receive_ready(1)
            if not arrived:
                return True
            message, descriptor = arrived[0]
            match message:
                case messages.Quit():
                    return False
                case messages.Kill(worker_id):
                    self._kill(worker_id)
                case messages.Start(worker_id):
                    self._start(worker_id, descriptor)

    def _kill(self, worker_id: int) -> None:
        for pid, worker in self._workers.items():
            if worker.worker_id == worker_id:
                kill(pid)

    def _parent_is_gone(self, events: list[tuple[int, int]]) -> bool:
        if self._parent_pidfd is not None:
            return any(descriptor == self._parent_pidfd for descriptor, _ in events)
        return os.getppid() != self._parent

    def _start(self, worker_id: int, descriptor: int | None) -> None:
        """Start a worker, and tell the parent if that fails.

        Args:
            worker_id: the worker's id.
            descriptor: the worker's end of its channel, closed here; None: this process had no
                number left for it.
        """
        try:
            if descriptor is None:
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            pid = self._launch(self._control, descriptor)
        except OSError as error:
            reason = str(explained(error, "a worker could not be started"))
            self._control.send(messages.CannotStart(worker_id, reason))
            return
        finally:
            if descriptor is not None:
                os.close(descriptor)
        pidfd = open_pidfd(pid)
        self._workers[pid] = _Worker(worker_id, pidfd)
        if pidfd is not None:
            self._poll.register(pidfd, select.POLLIN)

    def _reap(self) -> None:
        """Reap the processes that have ended, and tell the parent of the workers among them."""
        has_lost_workers = False
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            # An orphan that a worker has left.
            if pid not in self._workers:
                continue
            worker = self._workers.pop(pid)
            if worker.pidfd is not None:
                self._poll.unregister(worker.pidfd)
                os.close(worker.pidfd)
            # ru_maxrss is in bytes on macOS, in KiB on Linux.
            unit = 1 if sys.platform == "darwin" else 1024
            exitcode = os.waitstatus_to_exitcode(status)
            peak = usage.ru_maxrss * unit
            self._control.send(messages.Exited(worker.worker_id, exitcode, peak))
            has_lost_workers = True
        if has_lost_workers:
            kill_orphans(set(self._workers))

    def _end_workers(self) -> None:
        """Kill and reap all workers, and the processes that they have started."""
        for pid in self._workers:
            kill(pid)
        deadline = time.monotonic() + _END_SECONDS
        remaining = set()
        for pid in self._workers:
            if not wait_for_end(pid, deadline - time.monotonic()):
                remaining.add(pid)
        kill_orphans(remaining)


def forking_launcher(work: Callable[[Channel], None]) -> Launcher:
    """Return a launcher that forks this process; the worker then calls ``work(its channel)``."""

    def launch(control: Channel, descriptor: int) -> int:
        helper = os.getpid()
        with signals_held_back():
            pid = os.fork()
            if pid == 0:

                def run() -> None:
                    die_with(helper)
                    # Again: forking has restored the default handlers.
                    leave_signals_to_the_parent()
                    control.close()
                    work(Channel.from_descriptor(descriptor))

                run_and_exit(run)
        return pid

    return launch


def executing_launcher(payload: int) -> Launcher:
    """Return a launcher that executes a new interpreter.

    Args:
        payload: descriptor from which the interpreter reads the pipeline and its configuration.
    """
    # This process has the options of the parent, and does not change them.
    options = InterpreterOptions.here()

    def launch(_: Channel, descriptor: int) -> int:
        code = code_of("detaug.engine.local.worker", descriptor, payload, os.getpid())
        with signals_held_back():
            process = options.start(code, (descriptor, payload))
        # `_reap` reaps the process. Without a return code Popen's destructor would wait for it.
        process.returncode = 0
        return process.pid

    return launch


def main(control_descriptor: int, payload: int, parent: int, method: str) -> None:
    """Run the helper in a fresh interpreter, for the start methods "forkserver" and "spawn".

    Args:
        control_descriptor: of the channel to the parent.
        payload: descriptor from which workers read the pipeline and their configuration.
        parent: the parent's pid.
        method: the start method.
    """
    leave_signals_to_the_parent()
    control = Channel.from_descriptor(control_descriptor)
    if method == "spawn":
        _Helper(control, parent, executing_launcher(payload)).run()
        return
    # Imports numpy and torch, once for all workers.
    from detaug.engine.local import worker
    from detaug.system.threads import keep_one_thread

    keep_one_thread()

    def work(channel: Channel) -> None:
        worker.run_worker(channel, partial(worker.thawed, payload))

    _Helper(control, parent, forking_launcher(work)).run()


def main_forked(control: Channel, parent: int, work: Callable[[Channel], None]) -> None:
    """Run the helper in a fork of the parent, for the start method "fork".

    Args:
        control: the channel to the parent.
        parent: the parent's pid.
        work: runs a worker; its argument is the worker's channel.
    """
    # In this order: handlers before signals are unblocked, the import lock before an import, new
    # streams before anything is printed.
    leave_signals_to_the_parent()
    continue_importing()
    renew_standard_streams()
    import gc

    from detaug.system.process_settings import be_ready_to_fork

    be_ready_to_fork()
    # A garbage collection would write to every inherited object, and so copy its memory.
    gc.freeze()
    _Helper(control, parent, forking_launcher(work)).run()
