"""Memory, descriptors, threads and processes of the calling process, and whether they grow."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

import psutil

#: MiB that the interpreter and the C library may take or keep without a leak.
_SLACK = 48
#: Number of readings; the least of each is taken, because a descriptor may be on its way.
_READINGS = 10
#: Seconds after which something that has grown is an error.
_PATIENCE = 60


def resources() -> dict[str, int]:
    """Return what this process uses; "processes" are all below it."""
    gc.collect()
    readings = []
    for _ in range(_READINGS):
        readings.append(_read())
        time.sleep(0.02)
    return {name: min(reading[name] for reading in readings) for name in readings[0]}


def _read() -> dict[str, int]:
    process = psutil.Process()
    memory = process.memory_info()
    return {
        # Without files and shared memory.
        "MiB of memory": (memory.rss - memory.shared) >> 20,
        "descriptors": process.num_fds(),
        "threads": process.num_threads(),
        "processes": len(process.children(recursive=True)),
    }


def _do_nothing() -> None:
    """Do nothing: time alone has to pass."""


def flat_since(before: dict[str, int], proceed: Callable[[], object] = _do_nothing) -> str:
    """Return what was used and is used now, in words.

    Args:
        before: the result of `resources`, earlier.
        proceed: called while something has grown. An interpreter that makes one batch again may be
            at work for seconds, and its end is noticed with a later batch.

    Raises:
        AssertionError: something has grown.
    """
    allowed = {**before, "MiB of memory": before["MiB of memory"] + _SLACK}
    deadline = time.monotonic() + _PATIENCE
    after = resources()
    while _grown(after, allowed) and time.monotonic() < deadline:
        proceed()
        after = resources()
    text = ", ".join(f"{name} {before[name]} → {count}" for name, count in after.items())
    assert not _grown(after, allowed), f"{_grown(after, allowed)} have grown: {text}"
    return text


def _grown(after: dict[str, int], allowed: dict[str, int]) -> list[str]:
    return [name for name, count in after.items() if count > allowed[name]]
