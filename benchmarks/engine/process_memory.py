"""How much memory a process and all that it started use, each shared page counted once (PSS)."""

from __future__ import annotations

import os
import stat
import time
from dataclasses import dataclass
from pathlib import Path

import psutil


@dataclass(frozen=True)
class Memory:
    """One look at a process tree, in bytes.

    Attributes:
        pss: the sum of the processes' proportional set sizes.
        unmapped: shared memory files that one of them holds open and none of them has mapped: batches on their way.
            PSS does not see these.
    """

    pss: int
    unmapped: int


def tree_memory(pid: int) -> Memory:
    """The memory of `pid` and its descendants; a process that ends meanwhile counts nothing."""
    try:
        root = psutil.Process(pid)
        members = [pid, *(child.pid for child in root.children(recursive=True))]
    except psutil.NoSuchProcess:
        return Memory(0, 0)
    mapped: set[int] = set()
    files: dict[int, int] = {}
    pss = 0
    for member in members:
        try:
            pss += _pss(member)
            mapped |= _mapped_inodes(member)
            files.update(_open_shared_memory(member))
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
    return Memory(pss, sum(size for inode, size in files.items() if inode not in mapped))


def _pss(pid: int) -> int:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0


def _mapped_inodes(pid: int) -> set[int]:
    lines = Path(f"/proc/{pid}/maps").read_text(encoding="utf-8").splitlines()
    return {int(line.split(maxsplit=5)[4]) for line in lines}


def _open_shared_memory(pid: int) -> dict[int, int]:
    """Inode → allocated bytes of the memory-backed files that a process holds open."""
    files = {}
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = os.readlink(link)
            if not target.startswith(("/memfd:", "/dev/shm/")):
                continue
            status = link.stat()
        except FileNotFoundError:
            continue
        if stat.S_ISREG(status.st_mode):
            files[status.st_ino] = status.st_blocks * 512
    return files


def sleep_until(moment: float) -> None:
    """Sleep until `time.monotonic()` reads `moment`."""
    time.sleep(max(0.0, moment - time.monotonic()))
