"""How many cores a process may use: those it is bound to, and what its control group grants."""

from __future__ import annotations

import math
import os
from pathlib import Path


def usable() -> int:
    """Whole cores, at least one."""
    allowed = quota()
    return affinity() if allowed is None else max(1, min(affinity(), math.floor(allowed)))


def affinity() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def quota() -> float | None:
    """Cores' worth of time that the control group grants; None where it is not limited."""
    for words in (line.split() for line in group_lines("cpu.max")):
        if len(words) == 2 and words[0] != "max":
            return int(words[0]) / int(words[1])
    allowed, period = lines("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"), lines("/sys/fs/cgroup/cpu/cpu.cfs_period_us")
    if allowed and period and int(allowed[0]) > 0:
        return int(allowed[0]) / int(period[0])
    return None


def group_lines(name: str) -> list[str]:
    """A file of this process's control group (version 2), or of the container's."""
    for line in lines("/proc/self/cgroup"):
        if line.startswith("0::"):
            found = lines(f"/sys/fs/cgroup/{line[3:].strip().strip('/')}/{name}")
            if found:
                return found
    return lines(f"/sys/fs/cgroup/{name}")


def lines(file: str) -> list[str]:
    """Of a text file; none where it cannot be read."""
    try:
        return Path(file).read_text(errors="replace").splitlines()
    except OSError:
        return []
