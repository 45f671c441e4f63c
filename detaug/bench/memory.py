"""How much memory a process and all that it started use (Linux): each shared page is counted once."""

from __future__ import annotations

from pathlib import Path


def tree_memory(pid: int) -> int | None:
    """The sum of the proportional set sizes of a process and its descendants, in bytes; None where the system does not tell."""
    total, found = 0, False
    waiting = [pid]
    while waiting:
        each = waiting.pop()
        try:
            for line in Path(f"/proc/{each}/smaps_rollup").read_text(encoding="utf-8").splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1]) * 1024
                    found = True
            for task in Path(f"/proc/{each}/task").iterdir():
                waiting += [int(child) for child in (task / "children").read_text(encoding="utf-8").split()]
        except OSError:  # it has ended, or this is another system
            continue
    return total if found else None
