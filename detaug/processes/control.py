"""What a child process settles for itself: signals, its parent's death, its streams, what its own
children leave behind.
"""

from __future__ import annotations

import ctypes
import io
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from detaug.system import at_fork

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36  # <linux/prctl.h>
_LINUX = sys.platform.startswith("linux")
_MOST_GENERATIONS = 10
_PATIENCE = 0.5  # seconds; what waits in the kernel ends later by itself
_replaced: dict[int, Any] = {}  # by id; kept for good: closing one would wait for its lock

#: Signals for the training process. Schedulers send them to whole process groups; a worker leaves
#: them to the parent, which may want to save a checkpoint first.
_LEFT_TO_THE_PARENT: tuple[int, ...] = tuple(
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGQUIT")
    if hasattr(signal, name)
)


def leave_signals_to_the_parent() -> None:
    """Ignore signals for the parent, and forget handlers inherited from it: by a Python handler,
    for programs that a loader executes would inherit SIG_IGN. Processes that a loader forks get the
    default back.
    """
    signal.set_wakeup_fd(-1)
    # If the program ignored it, or reaped all children in a handler, the exit status of workers
    # would be lost.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number in _LEFT_TO_THE_PARENT:
        signal.signal(number, _take_no_notice)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _LEFT_TO_THE_PARENT)


@contextmanager
def signals_held_back() -> Iterator[None]:
    """A process started inside meets none of the parent's signals before it calls
    `leave_signals_to_the_parent`.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _LEFT_TO_THE_PARENT)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def interrupts_deferred() -> Iterator[None]:
    """Inside, signals with a Python handler (Ctrl-C) wait until the end: while processes start, an
    exception would leave some without an owner, and one in a newly forked child would let it
    continue as if it were the parent.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    pending: list[tuple[Any, int, Any]] = []
    previous: dict[int, Any] = {}
    for number in _LEFT_TO_THE_PARENT:
        handler = signal.getsignal(number)
        if callable(handler):
            previous[number] = handler
            signal.signal(number, lambda n, frame: pending.append((previous[n], n, frame)))
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        for handler, number, frame in pending:
            handler(number, frame)


def _take_no_notice(number: int, frame: Any) -> None:
    pass


def _default_signals() -> None:
    for number in _LEFT_TO_THE_PARENT:
        if signal.getsignal(number) is _take_no_notice:
            signal.signal(number, signal.SIG_DFL)


at_fork(after_in_child=_default_signals)


def die_with(parent: int) -> None:
    """Have the kernel kill this process when its parent dies; elsewhere watch for it.
    ``PR_SET_PDEATHSIG`` fires on the death of the *thread* that forked, hence the parent must have
    but one.
    """
    if _LINUX:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it died before the call
            os._exit(1)
        return

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, name="detaug-parent-watch", daemon=True).start()


def be_killed_first() -> None:
    """Where memory runs out, have the kernel end this process before its parent, whose death would
    end everything: its badness score is raised by half of the memory there is (of -1000 to
    1000).
    """
    file = Path("/proc/self/oom_score_adj")
    with suppress(OSError, ValueError):  # another system, or one that does not let us
        file.write_text(str(min(1000, int(file.read_text()) + 500)))


def open_pidfd(pid: int) -> int | None:
    """A descriptor that becomes readable when that process ends; None where there is no such
    thing.
    """
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


def wait_for_end(pid: int, timeout: float) -> bool:
    """Wait for a child within `timeout` seconds, and reap it; whether it has ended."""
    deadline = time.monotonic() + timeout
    while True:
        try:
            if os.waitpid(pid, os.WNOHANG)[0] == pid:
                return True
        except ChildProcessError:  # reaped already
            return True
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.002)


def kill(pid: int) -> None:
    """SIGKILL, if the process is still there and may be sent it."""
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def run_and_exit(function: Callable[[], Any]) -> None:
    """Run a forked child's work, and leave without the parent's exit handlers, buffers and
    finalizers.
    """
    code = 1
    try:
        function()
        code = 0
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else (0 if leaving.code is None else 1)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code)


def adopt_orphans() -> None:
    """From now on, what a dead worker leaves behind becomes this process's child, as it otherwise
    would init's.
    """
    if _LINUX:
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def kill_orphans(workers: set[int]) -> None:
    """Kill the children of this process that are not `workers`: pools and programs of dead workers'
    loaders, which would often wait for ever on pipes that their siblings hold open. A daemon that
    has moved to its own session stays.
    """
    deadline = time.monotonic() + _PATIENCE
    with suppress(OSError, psutil.Error):  # no descriptor is left to look for them
        for _ in range(_MOST_GENERATIONS):  # the children of those that are killed come next
            children = psutil.Process().children()
            orphans = [
                each
                for each in children
                if each.pid not in workers and os.getsid(each.pid) == os.getsid(0)
            ]
            if not orphans:
                return
            for each in orphans:
                kill(each.pid)
            if psutil.wait_procs(orphans, max(0.0, deadline - time.monotonic()))[1]:
                return


def renew_standard_streams() -> None:
    """Write to the same files through new objects; streams that are no files (a notebook's) are
    left as they are. A thread of the parent that was printing at the fork holds its stream's lock:
    in the child the first ``print`` would wait for ever.
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
    """Whether it is one of this process, or one that `renew_standard_streams` has put another in
    the place of.
    """
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
    if not isinstance(old, io.TextIOWrapper):
        return None
    try:
        file = open(old.fileno(), "wb", closefd=False)
    except (OSError, ValueError):  # in memory, or closed
        return None
    # Line by line: a worker may be killed at any moment, and its last words are wanted then.
    return io.TextIOWrapper(file, encoding=old.encoding, errors=old.errors, line_buffering=True)


def _redirect_logging(old: Any, new: io.TextIOWrapper) -> None:
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
    """``-9`` → ``"signal 9 (SIGKILL)"``, ``3`` → ``"exit code 3"``."""
    if exitcode >= 0:
        return f"exit code {exitcode}"
    names = {each.value: f" ({each.name})" for each in signal.Signals}
    return f"signal {-exitcode}{names.get(-exitcode, '')}"
