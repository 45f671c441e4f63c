"""Resident memory, descriptors, threads and processes of the calling process: whether they stay
flat.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

import psutil

#: Memory that the interpreter and the C library may take or keep without it being a leak (MiB).
_SLACK = 48
_LOOKS = 10
# Seconds.
_PATIENCE = 60


def resources() -> dict[str, int]:
    """Of this process; `processes` are all below it. The least of some looks: a descriptor may be
    on its way.
    """
    gc.collect()
    looks = []
    for _ in range(_LOOKS):
        looks.append(_look())
        time.sleep(0.02)
    return {name: min(look[name] for look in looks) for name in looks[0]}


def _look() -> dict[str, int]:
    process = psutil.Process()
    memory = process.memory_info()
    return {
        # Without files and shared memory.
        "MiB of memory": (memory.rss - memory.shared) >> 20,
        "descriptors": process.num_fds(),
        "threads": process.num_threads(),
        "processes": len(process.children(recursive=True)),
    }


def flat_since(before: dict[str, int], go_on: Callable[[], object] = lambda: None) -> str:
    """What there was and is, in words; an AssertionError where something has grown.

    An interpreter that makes one batch again may be at work for seconds, and its end is seen with a
    later batch: `advance` makes some.
    """
    allowed = {**before, "MiB of memory": before["MiB of memory"] + _SLACK}
    deadline = time.monotonic() + _PATIENCE
    after = resources()
    while _grown(after, allowed) and time.monotonic() < deadline:
        go_on()
        after = resources()
    seen = ", ".join(f"{name} {before[name]} → {count}" for name, count in after.items())
    assert not _grown(after, allowed), f"{_grown(after, allowed)} have grown: {seen}"
    return seen


def _grown(after: dict[str, int], allowed: dict[str, int]) -> list[str]:
    return [name for name, count in after.items() if count > allowed[name]]
