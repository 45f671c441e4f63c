"""How many cores a process may use: those it is bound to, and what its control group grants."""

from __future__ import annotations

import os

from detaug.memory.limits import of_control_groups


def usable() -> int:
    """Whole cores, at least one."""
    granted = [line.split() for line in of_control_groups("cpu.max")]
    quotas, periods = (of_control_groups(f"cpu.cfs_{part}_us", "cpu") for part in ("quota", "period"))
    granted += map(list, zip(quotas, periods, strict=False))
    limits = [int(quota) // int(period) for quota, period in granted if quota.isdigit()]  # else "max", or -1
    return max(1, min([affinity(), *limits]))


def affinity() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
