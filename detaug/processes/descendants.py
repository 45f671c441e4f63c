"""Processes that a worker's loader has started, and that are left when the worker is gone.

Linux only; elsewhere nothing is found. Standard library only.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time

from detaug.processes.control import kill

_PR_SET_CHILD_SUBREAPER = 36
_MOST_GENERATIONS = 10
_PATIENCE = 0.5  # seconds; what waits in the kernel ends later by itself


def adopt_orphans() -> None:
    """From now on, what a dead worker leaves behind becomes this process's child, as it otherwise would init's."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def kill_orphans(workers: set[int]) -> None:
    """Kill the children of this process that are not `workers`.

    A pool or subprocess of a loader is of no use without it, and would often wait forever on pipes that its siblings
    hold open. A daemon that has moved to its own session stays.
    """
    deadline = time.monotonic() + _PATIENCE
    for _ in range(_MOST_GENERATIONS):  # the children of those that are killed come next
        orphans = [pid for pid in _children() if pid not in workers and _in_this_session(pid)]
        if not orphans:
            return
        for pid in orphans:
            kill(pid)
        while not all(has_ended(pid) for pid in orphans):
            if time.monotonic() > deadline:
                return
            time.sleep(0.001)


def has_ended(pid: int) -> bool:
    """Whether a child has, which is reaped then."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True


def _children() -> list[int]:
    try:
        with open(f"/proc/self/task/{os.getpid()}/children") as file:
            return [int(word) for word in file.read().split()]
    except OSError:
        return []


def _in_this_session(pid: int) -> bool:
    try:
        return os.getsid(pid) == os.getsid(0)
    except OSError:
        return False
