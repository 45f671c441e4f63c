"""Which limit of the system a process has reached: its value, and what to do; and how many cores it
may use.
"""

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
#: What is limited beside memory, by the system's error: the words, the limit, and what shows it.
_LIMITS = {
    errno.EMFILE: ("number of a process's open files", "RLIMIT_NOFILE", "-n"),
    errno.EAGAIN: ("number of a user's processes and threads", "RLIMIT_NPROC", "-u"),
}


class LimitReached(OSError):
    """A limit of the system was reached. The message names it, its value, and what to do."""


def explained(error: OSError, what: str) -> LimitReached:
    """The system's error with the limit that was met. `what` could not be done, e.g. ``"cannot
    start a worker"``.
    """
    advice = advice_for(error)
    return LimitReached(
        error.errno, f"{what}: {error.strerror or error}." + (f" {advice}" if advice else "")
    )


def advice_for(error: BaseException) -> str:
    """What limit is behind `error`, and what to do; empty if there is none, or if the error says it
    already.
    """
    number = (
        error.errno if isinstance(error, OSError) and not isinstance(error, LimitReached) else None
    )
    if isinstance(error, RuntimeError) and "can't start new thread" in str(error):
        number = errno.EAGAIN
    if (
        isinstance(error, OSError) and error.filename is not None and number == errno.ENOSPC
    ):  # a disk is full
        return ""
    if isinstance(error, MemoryError) or number in (errno.ENOMEM, errno.ENOSPC):
        return _memory()
    if number not in _LIMITS or resource is None:
        return ""
    what, limit, option = _LIMITS[number]
    value = resource.getrlimit(getattr(resource, limit))[0]
    groups = (
        [int(each) for each in of_control_groups("pids.max") if each.isdigit()]
        if number == errno.EAGAIN
        else []
    )
    of_group = f", in the control group to {min(groups)} (pids.max)" if groups else ""
    here = "not limited" if value == resource.RLIM_INFINITY else f"limited to {value}"
    return (
        f"The {what} is {here} here (ulimit {option}){of_group}: raise the limit, or use fewer"
        " (num_processes)."
    )


class MemoryKills:
    """Whether the system's out-of-memory killer has killed any process since the last question."""

    def __init__(self) -> None:
        self._seen = self._count()

    @staticmethod
    def _count() -> str:
        return next((line for line in lines("/proc/vmstat") if line.startswith("oom_kill ")), "")

    def what_happened(self) -> str:
        """That it killed a process, and the memory there is; empty if it did not."""
        before, self._seen = self._seen, self._count()
        if before == self._seen:
            return ""
        return f"most probably killed by the system's out-of-memory killer. {_memory()}"


def private_memory() -> int:
    """This process's private memory in bytes: resident, without files and shared memory."""
    try:
        info = psutil.Process().memory_info()
    except OSError:  # no descriptor is left to read it with: the peak has to do
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (
            1 if sys.platform == "darwin" else 1024
        )
    return int(info.rss - getattr(info, "shared", 0))


def usable_cores() -> int:
    """Whole cores, at least one: those this process is bound to, as far as its control group grants
    them.
    """
    granted = [line.split() for line in of_control_groups("cpu.max")]
    quotas, periods = (
        of_control_groups(f"cpu.cfs_{part}_us", "cpu") for part in ("quota", "period")
    )
    granted += map(list, zip(quotas, periods, strict=False))
    limits = [
        int(quota) // int(period) for quota, period in granted if quota.isdigit()
    ]  # else "max", or -1
    bound = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    return max(1, min([bound, *limits]))


def _memory() -> str:
    known = [f"this process has {private_memory() // _MIB} MiB of private memory"]
    if resource is not None:
        address_space = resource.getrlimit(resource.RLIMIT_AS)[0]
        if address_space != resource.RLIM_INFINITY:
            known.append(f"its address space is limited to {address_space // _MIB} MiB (ulimit -v)")
    granted = (
        *of_control_groups("memory.max"),
        *of_control_groups("memory.limit_in_bytes", "memory"),
    )
    if limits := [int(each) for each in granted if each.isdigit() and int(each) < 2**60]:
        known.append(f"its control group is limited to {min(limits) // _MIB} MiB of memory")
    with suppress(OSError):
        known.append(f"{psutil.virtual_memory().available // _MIB} MiB are free on the machine")
    return (
        f"Memory: {', '.join(known)}. Use smaller batches, fewer processes (num_processes) or fewer"
        " batches ahead (num_cached), or raise the limit."
    )


def of_control_groups(file: str, controller: str = "") -> Iterator[str]:
    """The lines of a file of this process's control group and of those above it; in a container
    only the root may be there. Without a controller they are groups of version 2, which have all in
    one folder.
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
    """Of a text file; none where it cannot be read."""
    try:
        return Path(file).read_text(errors="replace").splitlines()
    except OSError:
        return []
