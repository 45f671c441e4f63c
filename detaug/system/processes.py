"""Settings that a child process makes for itself: signals, its parent's death, streams, orphans."""

from __future__ import annotations

import ctypes
import io
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from detaug.system.platform import at_fork

#: From <linux/prctl.h>.
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

_LINUX = sys.platform.startswith("linux")

#: Generations of orphans that are killed: the children of those that are killed come next.
_MOST_GENERATIONS = 10
#: Seconds that orphans are waited for. One that waits in the kernel ends later by itself.
_PATIENCE = 0.5

#: Streams that were replaced, by id. They are kept for ever: closing one would wait for its lock.
_replaced: dict[int, Any] = {}

#: Signals for the training process. Schedulers send them to whole process groups; a worker leaves
#: them to the parent, which may want to save a checkpoint first.
_LEFT_TO_THE_PARENT: tuple[int, ...] = tuple(
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGQUIT")
    if hasattr(signal, name)
)


def leave_signals_to_the_parent() -> None:
    """Ignore signals for the parent, and forget handlers inherited from it.

    They are ignored by a Python handler, because programs that a loader executes would inherit
    SIG_IGN. Processes that a loader forks get the default back.
    """
    signal.set_wakeup_fd(-1)
    # If the program ignored it, or reaped all children in a handler, the exit status of workers
    # would be lost.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number in _LEFT_TO_THE_PARENT:
        signal.signal(number, _ignore)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _LEFT_TO_THE_PARENT)


@contextmanager
def signals_held_back() -> Iterator[None]:
    """Block the parent's signals: a process that is started inside the block gets none at first.

    It gets them once it has called `leave_signals_to_the_parent`.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _LEFT_TO_THE_PARENT)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def interrupts_deferred() -> Iterator[None]:
    """Have signals with a Python handler (Ctrl-C) wait until the end of the block.

    While processes start, an exception would leave some without an owner, and one in a newly forked
    child would let it continue as if it were the parent.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    pending: list[tuple[int, Any]] = []
    previous: dict[int, Any] = {}

    def defer(number: int, frame: Any) -> None:
        pending.append((number, frame))

    for number in _LEFT_TO_THE_PARENT:
        handler = signal.getsignal(number)
        if callable(handler):
            # Noted before the handler is replaced: a signal may come right after that.
            previous[number] = handler
            signal.signal(number, defer)
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        for number, frame in pending:
            previous[number](number, frame)


def _ignore(number: int, frame: Any) -> None:
    """Do nothing: the signal is for the parent."""


def _default_signals() -> None:
    """Give a fork of a worker the default handlers of signals that the worker ignores."""
    for number in _LEFT_TO_THE_PARENT:
        if signal.getsignal(number) is _ignore:
            signal.signal(number, signal.SIG_DFL)


at_fork(after_in_child=_default_signals)


def die_with(parent: int) -> None:
    """Have the kernel kill this process when its parent dies; elsewhere watch for it.

    ``PR_SET_PDEATHSIG`` fires on the death of the *thread* that forked, hence the parent must have
    but one.
    """
    if _LINUX:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            # It died before the call.
            os._exit(1)
        return

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, name="detaug-parent-watch", daemon=True).start()


def be_killed_first() -> None:
    """Have the kernel end this process before its parent, where memory runs out.

    The parent's death would end everything. This process's badness score (-1000 to 1000) is raised
    by half of the memory there is.
    """
    file = Path("/proc/self/oom_score_adj")
    # Another system has no such file, and some do not let a process write it.
    with suppress(OSError, ValueError):
        score = int(file.read_text()) + 500
        file.write_text(str(min(1000, score)))


def open_pidfd(pid: int) -> int | None:
    """Return a descriptor that is readable when the process ends; None: this system has none."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


def wait_for_end(pid: int, timeout: float) -> bool:
    """Wait for a child at most `timeout` seconds, and reap it; return True if it has ended."""
    deadline = time.monotonic() + timeout
    pidfd = open_pidfd(pid)
    if pidfd is not None:
        ended = select.poll()
        ended.register(pidfd, select.POLLIN)
        ended.poll(max(0.0, timeout) * 1000)
        os.close(pidfd)
    while True:
        try:
            if os.waitpid(pid, os.WNOHANG)[0] == pid:
                return True
        except ChildProcessError:
            # It was reaped already.
            return True
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.002)


def kill(pid: int) -> None:
    """Send SIGKILL, if the process is still there and may be sent it."""
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def run_and_exit(function: Callable[[], Any]) -> None:
    """Run a forked child's work, and exit.

    The parent's exit handlers, buffers and finalizers are left alone.
    """
    code = 1
    try:
        function()
        code = 0
    except SystemExit as exiting:
        if exiting.code is None:
            code = 0
        elif isinstance(exiting.code, int):
            code = exiting.code
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code)


def adopt_orphans() -> None:
    """From now on, adopt the processes that dead workers leave, as init otherwise would."""
    if _LINUX:
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def kill_orphans(workers: set[int]) -> None:
    """Kill the children of this process whose ids are not among `workers`.

    They are pools and programs of dead workers' loaders, which would often wait for ever on pipes
    that their siblings hold open. A daemon that has moved to its own session stays.
    """
    if not workers and not _has_children():
        # As at most ends. To look for orphans takes the longer the more processes a machine has.
        return
    deadline = time.monotonic() + _PATIENCE
    # No descriptor may be left to look for them.
    with suppress(OSError, psutil.Error):
        for _ in range(_MOST_GENERATIONS):
            orphans = []
            for child in psutil.Process().children():
                if child.pid not in workers and os.getsid(child.pid) == os.getsid(0):
                    orphans.append(child)
            if not orphans:
                return
            for orphan in orphans:
                kill(orphan.pid)
            _, alive = psutil.wait_procs(orphans, max(0.0, deadline - time.monotonic()))
            if alive:
                return


def _has_children() -> bool:
    """Return True if this process has a child; one that has ended is reaped."""
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return False
    return True


def renew_standard_streams() -> None:
    """Write to the same files through new objects.

    A thread of the parent that was printing at the fork holds its stream's lock: in the child the
    first ``print`` would wait for ever. Streams that are no files (a notebook's) are left as they
    are.
    """
    for name in ("stdout", "stderr"):
        old = getattr(sys, name)
        new = _same_file(old)
        if new is None:
            continue
        _replaced[id(old)] = old
        for attribute in (name, f"__{name}__"):
            if getattr(sys, attribute) is old:
                setattr(sys, attribute, new)
        _redirect_logging(old, new)


def is_standard_stream(value: Any) -> bool:
    """Return True for a standard stream of this process, also one that was replaced."""
    streams = (
        sys.stdin,
        sys.stdout,
        sys.stderr,
        sys.__stdin__,
        sys.__stdout__,
        sys.__stderr__,
        *_replaced.values(),
    )
    return value is not None and any(value is stream for stream in streams)


def _same_file(old: Any) -> io.TextIOWrapper | None:
    """Return a new stream to the file of an old one; None where there is no such file."""
    if not isinstance(old, io.TextIOWrapper):
        return None
    try:
        file = open(old.fileno(), "wb", closefd=False)
    except (OSError, ValueError):
        # The stream is in memory, or closed.
        return None
    # Line by line: a worker may be killed at any moment, and its last words are wanted then.
    return io.TextIOWrapper(file, encoding=old.encoding, errors=old.errors, line_buffering=True)


def _redirect_logging(old: Any, new: io.TextIOWrapper) -> None:
    """Have log handlers that write to the old stream write to the new one."""
    logging = sys.modules.get("logging")
    if logging is None:
        return
    for reference in list(logging._handlerList):
        handler = reference()
        if handler is None:
            continue
        # Only an attribute of the handler's own: that of `logging.lastResort` is a property, which
        # follows sys.stderr by itself and cannot be set.
        if vars(handler).get("stream") is old:
            handler.stream = new


def signal_name(exitcode: int) -> str:
    """Return the words for an exit status: "signal 9 (SIGKILL)" for -9, "exit code 3" for 3."""
    if exitcode >= 0:
        return f"exit code {exitcode}"
    names = {number.value: f" ({number.name})" for number in signal.Signals}
    return f"signal {-exitcode}{names.get(-exitcode, '')}"
