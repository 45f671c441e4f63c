"""Resident memory, descriptors, threads and processes of the calling process: whether they stay flat."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass, fields

import psutil

from tests.stress.outcome import Outcome

_MIB = 2**20
#: Memory that the interpreter and the C library may take or keep without it being a leak (bytes).
_SLACK = 48 * _MIB
_LOOKS = 10
_PATIENCE = 60  # seconds


@dataclass(frozen=True)
class Resources:
    """Counts at one moment; `memory` is resident, without files and shared memory, in bytes."""

    memory: int
    descriptors: int
    threads: int
    processes: int

    @staticmethod
    def now() -> Resources:
        """Of this process; `processes` are all below it. The least of some looks: a descriptor may be on its way."""
        gc.collect()
        looks = []
        for _ in range(_LOOKS):
            looks.append(Resources._look())
            time.sleep(0.02)
        return Resources(*(min(getattr(look, field.name) for look in looks) for field in fields(Resources)))

    def grown(self, before: Resources) -> list[str]:
        """What there is more of than before, but for memory."""
        return [name for name in ("descriptors", "threads", "processes") if getattr(self, name) > getattr(before, name)]

    @staticmethod
    def _look() -> Resources:
        process = psutil.Process()
        memory = process.memory_info()
        below = len(process.children(recursive=True))
        return Resources(memory.rss - memory.shared, process.num_fds(), process.num_threads(), below)


def judge_flatness(outcome: Outcome, before: Resources, go_on: Callable[[], object] = lambda: None) -> None:
    """Note what was measured, and what has grown.

    An interpreter that makes one batch again may be at work for seconds, and its end is seen with a later batch: `go_on` makes
    some.
    """
    deadline = time.monotonic() + _PATIENCE
    after = Resources.now()
    while after.grown(before) and time.monotonic() < deadline:
        go_on()
        after = Resources.now()
    outcome.notes.append(
        f"memory {before.memory / _MIB:.0f} → {after.memory / _MIB:.0f} MiB, descriptors {before.descriptors} → "
        f"{after.descriptors}, threads {before.threads} → {after.threads}, processes {before.processes} → "
        f"{after.processes}"
    )
    if after.memory > before.memory + _SLACK:
        outcome.failures.append("memory has grown")
    outcome.failures += [f"{name} have grown" for name in after.grown(before)]
