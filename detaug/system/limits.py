"""The system's limit that a process has reached, its value, and advice; and the usable cores."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

_MIB = 2**20
#: Limits except memory, by the system's error: the words, the limit, and the option of `ulimit`.
_LIMITS = {
    errno.EMFILE: ("number of a process's open files", "RLIMIT_NOFILE", "-n"),
    errno.EAGAIN: ("number of a user's processes and threads", "RLIMIT_NPROC", "-u"),
}


class LimitReached(OSError):
    """A limit of the system was reached. The message names it, its value, and what to do."""


def explained(error: OSError, action: str) -> LimitReached:
    """Return the system's error with the limit that was met.

    Args:
        error: the system's.
        action: what could not be done, such as ``"cannot start a worker"``.
    """
    message = f"{action}: {error.strerror or error}."
    advice = advice_for(error)
    if advice:
        message = f"{message} {advice}"
    return LimitReached(error.errno, message)


def advice_for(error: BaseException) -> str:
    """Return the limit that caused an error, and advice; "" if none did, or the error says so."""
    if isinstance(error, MemoryError):
        return _memory()
    number = _system_error(error)
    if number in (errno.ENOMEM, errno.ENOSPC):
        return _memory()
    if number not in _LIMITS or resource is None:
        return ""
    words, limit, option = _LIMITS[number]
    value, _ = resource.getrlimit(getattr(resource, limit))
    state = "not limited" if value == resource.RLIM_INFINITY else f"limited to {value}"
    group_limit = ""
    if number == errno.EAGAIN:
        limits = [int(text) for text in control_group_lines("pids.max") if text.isdigit()]
        if limits:
            group_limit = f", in the control group to {min(limits)} (pids.max)"
    return (
        f"The {words} is {state} here (ulimit {option}){group_limit}: raise the limit, or use fewer"
        " (num_processes)."
    )


def _system_error(error: BaseException) -> int | None:
    """Return the number of the system's error that a limit may have caused; None: none may have."""
    if isinstance(error, RuntimeError) and "can't start new thread" in str(error):
        return errno.EAGAIN
    if not isinstance(error, OSError) or isinstance(error, LimitReached):
        return None
    if error.filename is not None and error.errno == errno.ENOSPC:
        # A disk is full. Shared memory, which has no file name, is the other case.
        return None
    return error.errno


class MemoryKills:
    """Kills by the system's out-of-memory killer since the last question."""

    def __init__(self) -> None:
        self._count = _memory_kills()

    def describe_new_kill(self) -> str:
        """Return that it killed a process, and the memory there is; "" if it did not."""
        count_before = self._count
        self._count = _memory_kills()
        if self._count == count_before:
            return ""
        return f"most probably killed by the system's out-of-memory killer. {_memory()}"


def _memory_kills() -> str:
    """Return the system's line with the number of kills; "" where it counts none."""
    for line in lines("/proc/vmstat"):
        if line.startswith("oom_kill "):
            return line
    return ""


def private_memory() -> int:
    """Return this process's private memory in bytes: resident, without files and shared memory."""
    try:
        info = psutil.Process().memory_info()
    except OSError:
        # No descriptor is left to read it with: the peak has to do, which Linux has in KiB.
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        if sys.platform == "darwin":
            return peak
        return peak * 1024
    return int(info.rss - getattr(info, "shared", 0))


def usable_cores() -> int:
    """Return the number of whole cores that this process may use, at least one.

    Its affinity and its control group's quota of CPU time limit them.
    """
    if hasattr(os, "sched_getaffinity"):
        num_cores = len(os.sched_getaffinity(0))
    else:
        num_cores = os.cpu_count() or 1
    for quota, period in _cpu_quotas():
        # Else it is "max", or -1.
        if quota.isdigit():
            num_cores = min(num_cores, int(quota) // int(period))
    return max(1, num_cores)


def _cpu_quotas() -> Iterator[tuple[str, str]]:
    """Yield (quota, period) of the control groups' CPU time, in microseconds."""
    for line in control_group_lines("cpu.max"):
        quota, period = line.split()
        yield quota, period
    # Groups of version 1.
    quotas = control_group_lines("cpu.cfs_quota_us", "cpu")
    periods = control_group_lines("cpu.cfs_period_us", "cpu")
    yield from zip(quotas, periods, strict=False)


def _memory() -> str:
    """Return the memory there is, and advice."""
    facts = [f"this process has {private_memory() // _MIB} MiB of private memory"]
    if resource is not None:
        address_space, _ = resource.getrlimit(resource.RLIMIT_AS)
        if address_space != resource.RLIM_INFINITY:
            facts.append(f"its address space is limited to {address_space // _MIB} MiB (ulimit -v)")
    group_limits = []
    for text in (
        *control_group_lines("memory.max"),
        *control_group_lines("memory.limit_in_bytes", "memory"),
    ):
        # Version 1 has a number near 2**63 for no limit.
        if text.isdigit() and int(text) < 2**60:
            group_limits.append(int(text))
    if group_limits:
        facts.append(f"its control group is limited to {min(group_limits) // _MIB} MiB of memory")
    with suppress(OSError):
        facts.append(f"{psutil.virtual_memory().available // _MIB} MiB are free on the machine")
    return (
        f"Memory: {', '.join(facts)}. Use smaller batches, fewer processes (num_processes) or fewer"
        " batches ahead (num_cached), or raise the limit."
    )


def control_group_lines(file: str, controller: str = "") -> Iterator[str]:
    """Yield the lines of a file of this process's control group and of those above it.

    In a container only the root may be there.

    Args:
        file: its name.
        controller: of groups of version 1; "": groups of version 2, which have all in one folder.
    """
    for line in lines("/proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            root = Path("/sys/fs/cgroup", controller)
            group = root / path.lstrip("/")
            for folder in (group, *group.parents):
                if folder.is_relative_to(root):
                    yield from lines(folder / file)


def lines(file: str | Path) -> list[str]:
    """Return the lines of a text file; none where it cannot be read."""
    try:
        return Path(file).read_text(errors="replace").splitlines()
    except OSError:
        return []
