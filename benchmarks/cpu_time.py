"""CPU time of a process tree."""

from __future__ import annotations

import psutil


def tree_cpu_seconds(pid: int) -> float:
    """User and system time so far of `pid`, of its descendants that are alive, and of those that they have waited for."""
    total = 0.0
    root = psutil.Process(pid)
    for process in [root, *root.children(recursive=True)]:
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total
