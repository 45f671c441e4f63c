"""The helper process from which every worker is started: single-threaded, as pristine as when the
augmenter started.

It forks workers (start method "fork": it is itself a fork of the parent, made early; "forkserver":
a fresh interpreter) or executes new interpreters ("spawn"). A worker that is started later, after
another died, so never inherits the parent's later state, its threads or its CUDA context. It also
reaps workers and says how they ended. When the parent is gone, however it went, the helper leaves;
and the kernel kills the workers with it.

What a dead worker's loader had started (a pool, a program) becomes the helper's child, and is
killed.

Standard library and psutil only: a helper for "spawn" starts in milliseconds.
"""

from __future__ import annotations

import errno
import os
import select
import sys
import time
from collections.abc import Callable

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

#: Called with the helper's own channel and the worker's end of its channel: starts the worker,
#: returns its pid.
Launcher = Callable[[Channel, int], int]

_POLL_SECONDS = 0.2  # only where there are no pidfds


class _Helper:
    def __init__(self, control: Channel, parent: int, launch: Launcher) -> None:
        self._control = control
        self._parent = parent
        self._launch = launch
        self._workers: dict[int, tuple[int, int | None]] = {}  # pid → number, pidfd
        self._poll = select.poll()
        self._poll.register(control, select.POLLIN)
        self._parent_pidfd = open_pidfd(parent)
        if self._parent_pidfd is not None:
            self._poll.register(self._parent_pidfd, select.POLLIN)

    def run(self) -> None:
        """Until told to quit, or until the parent is gone."""
        adopt_orphans()
        try:
            while True:
                blocking = None not in (
                    self._parent_pidfd,
                    *(pidfd for _, pidfd in self._workers.values()),
                )
                events = self._poll.poll(None if blocking else _POLL_SECONDS * 1000)
                if self._parent_is_gone(events):
                    return
                # Ahead of the parent's wishes: SIGKILL goes only to a pid that is still its
                # worker's, for the kernel gives no pid to another process before it is reaped.
                self._reap()
                # One at a time: a worker started meanwhile would inherit the descriptors that came
                # with the others. But all of them: what has been read from the socket ends no
                # `poll`.
                while arrived := self._control.receive_ready(1):
                    message, descriptor = arrived[0]
                    match message:
                        case messages.Quit():
                            return
                        case messages.Kill(number):
                            for pid in [
                                pid
                                for pid, (of_number, _) in self._workers.items()
                                if of_number == number
                            ]:
                                kill(pid)
                        case messages.Start(number):
                            self._start(number, descriptor)
        except ChannelClosed:
            pass
        finally:
            self._end_workers()

    def _parent_is_gone(self, events: list[tuple[int, int]]) -> bool:
        if self._parent_pidfd is not None:
            return any(number == self._parent_pidfd for number, _ in events)
        return os.getppid() != self._parent

    def _start(self, number: int, descriptor: int | None) -> None:
        try:
            if descriptor is None:
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            pid = self._launch(self._control, descriptor)
        except OSError as error:
            self._control.send(
                messages.CannotStart(number, str(explained(error, "a worker could not be started")))
            )
            return
        finally:
            if descriptor is not None:
                os.close(descriptor)
        pidfd = open_pidfd(pid)
        self._workers[pid] = number, pidfd
        if pidfd is not None:
            self._poll.register(pidfd, select.POLLIN)

    def _reap(self) -> None:
        ended_workers = False
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            if pid not in self._workers:
                continue  # an orphan of a worker's
            number, pidfd = self._workers.pop(pid)
            if pidfd is not None:
                self._poll.unregister(pidfd)
                os.close(pidfd)
            unit = 1 if sys.platform == "darwin" else 1024
            exitcode = os.waitstatus_to_exitcode(status)
            self._control.send(messages.Exited(number, exitcode, usage.ru_maxrss * unit))
            ended_workers = True
        if ended_workers:
            kill_orphans(set(self._workers))

    def _end_workers(self) -> None:
        for pid in self._workers:
            kill(pid)
        deadline = time.monotonic() + 2.0
        for pid in self._workers:
            wait_for_end(pid, deadline - time.monotonic())
        kill_orphans(set(self._workers))


def forking_launcher(work: Callable[[Channel], None]) -> Launcher:
    """A launcher that forks this process; the worker runs ``work(its channel)``."""

    def launch(control: Channel, descriptor: int) -> int:
        helper = os.getpid()
        with signals_held_back():
            pid = os.fork()
            if pid == 0:

                def live() -> None:
                    die_with(helper)
                    leave_signals_to_the_parent()  # forking put the defaults back
                    control.close()
                    work(Channel.from_descriptor(descriptor))

                run_and_exit(live)
        return pid

    return launch


def executing_launcher(payload: int) -> Launcher:
    """A launcher that executes a new interpreter, which reads what to do from the descriptor
    `payload`.
    """
    surrounding = (
        InterpreterOptions.here()
    )  # this process was started with it, and changes nothing about it

    def launch(_: Channel, descriptor: int) -> int:
        code = code_of("detaug.engine.local.worker", descriptor, payload, os.getpid())
        with signals_held_back():
            process = surrounding.start(code, (descriptor, payload))
        process.returncode = 0  # reaped by the helper's own wait; its destructor need not care
        return process.pid

    return launch


def main(control_descriptor: int, payload: int, parent: int, method: str) -> None:
    """A fresh interpreter as helper, for "forkserver" and "spawn"."""
    leave_signals_to_the_parent()
    control = Channel.from_descriptor(control_descriptor)
    if method == "spawn":
        _Helper(control, parent, executing_launcher(payload)).run()
        return
    from detaug.engine.local import worker  # numpy and torch, once for all workers
    from detaug.system.threads import keep_one_thread

    keep_one_thread()

    launch = forking_launcher(lambda channel: worker.work(channel, lambda: worker.thawed(payload)))
    _Helper(control, parent, launch).run()


def main_forked(control: Channel, parent: int, work: Callable[[Channel], None]) -> None:
    """A fork of the parent as helper, for "fork"."""
    leave_signals_to_the_parent()
    continue_importing()
    renew_standard_streams()
    import gc

    from detaug.system.process_settings import be_ready_to_fork

    be_ready_to_fork()
    # Collections would touch (and so copy) every inherited object's memory.
    gc.freeze()
    _Helper(control, parent, forking_launcher(work)).run()
