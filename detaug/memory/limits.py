"""Which limit of the system a process has reached: its value, and what to do. Standard library only."""

from __future__ import annotations

import errno
import os
import resource
from pathlib import Path

_MIB = 2**20
_LESS = "use smaller batches, fewer processes (num_processes) or fewer batches ahead (num_cached), or raise the limit"


class LimitReached(OSError):
    """A limit of the system was reached. The message names it, its value, and what to do."""


def explained(error: OSError, what: str) -> LimitReached:
    """The error with the limit that was met.

    Args:
        error: what the system said.
        what: what could not be done, e.g. ``"cannot start a worker"``.
    """
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
        errno.ENFILE: _descriptors_of_the_system,
        errno.ENOMEM: _memory,
        errno.ENOSPC: _memory if error.filename is None else _disk,
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
        return _number_after("/proc/vmstat", "\noom_kill ")

    def what_happened(self) -> str:
        """That it killed a process, and the memory there is; empty if it did not."""
        before, self._seen = self._seen, self._count()
        if None in (before, self._seen) or before == self._seen:
            return ""
        return f"most probably killed by the system's out-of-memory killer. {_memory(mappings=False)}"


def private_memory() -> int:
    """This process's private memory in bytes: resident, without files and shared memory."""
    try:
        with open("/proc/self/statm") as file:
            _, resident, shared = (int(word) for word in file.read().split()[:3])
    except OSError:  # no /proc: the peak has to do
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return (resident - shared) * os.sysconf("SC_PAGE_SIZE")


def _memory(mappings: bool = True) -> str:
    known = [f"this process has {private_memory() // _MIB} MiB of private memory"]
    address_space = resource.getrlimit(resource.RLIMIT_AS)[0]
    if address_space != resource.RLIM_INFINITY:
        known.append(f"its address space is limited to {address_space // _MIB} MiB (ulimit -v)")
    group = _memory_of_the_control_group()
    if group is not None:
        known.append(f"its control group is limited to {group // _MIB} MiB of memory")
    free = _number_after("/proc/meminfo", "MemAvailable:")
    if free is not None:
        known.append(f"{free // 1024} MiB are free on the machine")
    most = _number_after("/proc/sys/vm/max_map_count", "")
    if mappings and most is not None:
        known.append(f"a process may have {most} mappings (vm.max_map_count), of which every held batch takes one")
    return f"Memory: {', '.join(known)}. To get by with less, {_LESS}."


def _memory_of_the_control_group() -> int | None:
    found = []
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            root, name = Path("/sys/fs/cgroup"), "memory.max"
        elif "memory" in controllers.split(","):
            root, name = Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"
        else:
            continue
        group = root / path.lstrip("/")
        for folder in [group, *group.parents]:  # in a container only the root may be there
            value = _number_after(str(folder / name), "")
            if value is not None and value < 2**60:
                found.append(value)
            if folder == root:
                break
    return min(found, default=None)


def _number_after(file: str, word: str) -> int | None:
    try:
        text = Path(file).read_text()
    except OSError:
        return None
    after = text.partition(word)[2] if word else text
    first = after.split()[:1]
    return int(first[0]) if first and first[0].isdigit() else None


def _descriptors() -> str:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        used = f"{len(os.listdir('/proc/self/fd'))} are open"
    except OSError:  # listing takes one as well
        used = "all are open"
    most = "no limit" if hard == resource.RLIM_INFINITY else hard
    return (
        f"A process may have {soft} open files here (ulimit -n; at most {most}), and {used}: close files, or raise the "
        f"limit, e.g. `ulimit -n {min(hard, 65536) if hard != resource.RLIM_INFINITY else 65536}`."
    )


def _descriptors_of_the_system() -> str:
    return f"The whole system may have {_number_after('/proc/sys/fs/file-max', '')} open files (sysctl fs.file-max)."


def _file_size() -> str:
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    value = "not limited" if limit == resource.RLIM_INFINITY else f"limited to {limit} bytes"
    return f"The size of a file, and of a block of shared memory, is {value} here (ulimit -f): raise it."


def _processes() -> str:
    limit = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    value = "not limited" if limit == resource.RLIM_INFINITY else f"limited to {limit}"
    group = _number_after("/sys/fs/cgroup/pids.max", "")
    of_group = f", the control group's to {group} (pids.max)" if group is not None else ""
    return (
        f"The number of a user's processes and threads is {value} here (ulimit -u){of_group}: use fewer "
        "(num_processes), or raise the limit."
    )


def _disk() -> str:
    return "The file system is full, or a quota is used up."


def _read_only() -> str:
    return "The file system is read-only: choose another folder (TMPDIR for temporary files), or mount one writable."
