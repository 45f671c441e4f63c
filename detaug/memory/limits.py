"""Which limit of the system a process has reached: its value, and what to do; and what control groups grant."""

from __future__ import annotations

import errno
import resource
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil

_MIB = 2**20
_LESS = "use smaller batches, fewer processes (num_processes) or fewer batches ahead (num_cached), or raise the limit"


class LimitReached(OSError):
    """A limit of the system was reached. The message names it, its value, and what to do."""


def explained(error: OSError, what: str) -> LimitReached:
    """The system's error with the limit that was met. `what` could not be done, e.g. ``"cannot start a worker"``."""
    advice = advice_for(error)
    return LimitReached(error.errno, f"{what}: {error.strerror or error}." + (f" {advice}" if advice else ""))


def advice_for(error: BaseException) -> str:
    """One sentence about the limit behind `error`; empty if there is none, or if the error has it already."""
    if isinstance(error, LimitReached):
        return ""
    if isinstance(error, MemoryError):
        return _memory()
    if isinstance(error, RuntimeError) and "can't start new thread" in str(error):
        return _processes()
    if not isinstance(error, OSError):
        return ""
    advice = {
        errno.EMFILE: _descriptors,
        errno.ENOMEM: _memory,
        errno.ENOSPC: _memory if error.filename is None else None,
        errno.EFBIG: _file_size,
        errno.EAGAIN: _processes,
        errno.EROFS: _read_only,
    }.get(error.errno or 0)
    return advice() if advice is not None else ""


class MemoryKills:
    """Whether the system's out-of-memory killer has killed any process since the last question."""

    def __init__(self) -> None:
        self._seen = self._count()

    @staticmethod
    def _count() -> int | None:
        return next((_number(line[9:]) for line in lines("/proc/vmstat") if line.startswith("oom_kill ")), None)

    def what_happened(self) -> str:
        """That it killed a process, and the memory there is; empty if it did not."""
        before, self._seen = self._seen, self._count()
        if None in (before, self._seen) or before == self._seen:
            return ""
        return f"most probably killed by the system's out-of-memory killer. {_memory(mappings=False)}"


def private_memory() -> int:
    """This process's private memory in bytes: resident, without files and shared memory."""
    try:
        info = psutil.Process().memory_info()
    except OSError:  # no descriptor is left to read it with: the peak has to do
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return int(info.rss - getattr(info, "shared", 0))


def _memory(mappings: bool = True) -> str:
    known = [f"this process has {private_memory() // _MIB} MiB of private memory"]
    address_space = resource.getrlimit(resource.RLIMIT_AS)[0]
    if address_space != resource.RLIM_INFINITY:
        known.append(f"its address space is limited to {address_space // _MIB} MiB (ulimit -v)")
    granted = (*of_control_groups("memory.max"), *of_control_groups("memory.limit_in_bytes", "memory"))
    if limits := [int(each) for each in granted if each.isdigit() and int(each) < 2**60]:
        known.append(f"its control group is limited to {min(limits) // _MIB} MiB of memory")
    with suppress(OSError):
        known.append(f"{psutil.virtual_memory().available // _MIB} MiB are free on the machine")
    most = _number_in("/proc/sys/vm/max_map_count")
    if mappings and most is not None:
        known.append(f"a process may have {most} mappings (vm.max_map_count), of which every held batch takes one")
    return f"Memory: {', '.join(known)}. To get by with less, {_LESS}."


def of_control_groups(file: str, controller: str = "") -> Iterator[str]:
    """The lines of a file of this process's control group and of those above it; in a container only the root may be there.
    Without a controller they are groups of version 2, which have all in one folder."""
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


def _number_in(file: str) -> int | None:
    return next(map(_number, lines(file)), None)


def _number(text: str) -> int | None:
    return int(text) if text.strip().isdigit() else None


def _descriptors() -> str:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        used = f"{psutil.Process().num_fds()} are open"
    except (OSError, psutil.Error):  # counting takes one as well
        used = "all are open"
    most = "no limit" if hard == resource.RLIM_INFINITY else hard
    return (
        f"A process may have {soft} open files here (ulimit -n; at most {most}), and {used}: close files, or raise the "
        f"limit, e.g. `ulimit -n {min(hard, 65536) if hard != resource.RLIM_INFINITY else 65536}`."
    )


def _file_size() -> str:
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    value = "not limited" if limit == resource.RLIM_INFINITY else f"limited to {limit} bytes"
    return f"The size of a file, and of a block of shared memory, is {value} here (ulimit -f): raise it."


def _processes() -> str:
    limit = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    value = "not limited" if limit == resource.RLIM_INFINITY else f"limited to {limit}"
    granted = [int(each) for each in of_control_groups("pids.max") if each.isdigit()]
    of_group = f", the control group's to {min(granted)} (pids.max)" if granted else ""
    return (
        f"The number of a user's processes and threads is {value} here (ulimit -u){of_group}: use fewer "
        "(num_processes), or raise the limit."
    )


def _read_only() -> str:
    return "The file system is read-only: choose another folder (TMPDIR for temporary files), or mount one writable."
