"""Resident memory, descriptors, threads and processes of the calling process: whether they stay flat."""

from __future__ import annotations

import gc
import time
from dataclasses import dataclass, fields

import psutil

from tests.stress.outcome import Outcome

_MIB = 2**20
#: Memory that the interpreter and the C library may take or keep without it being a leak (bytes).
_SLACK = 48 * _MIB
_LOOKS = 10


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

    @staticmethod
    def _look() -> Resources:
        process = psutil.Process()
        memory = process.memory_info()
        below = len(process.children(recursive=True))
        return Resources(memory.rss - memory.shared, process.num_fds(), process.num_threads(), below)


def judge_flatness(outcome: Outcome, before: Resources, after: Resources) -> None:
    """Note what was measured, and what has grown."""
    outcome.notes.append(
        f"memory {before.memory / _MIB:.0f} → {after.memory / _MIB:.0f} MiB, descriptors {before.descriptors} → "
        f"{after.descriptors}, threads {before.threads} → {after.threads}, processes {before.processes} → "
        f"{after.processes}"
    )
    if after.memory > before.memory + _SLACK:
        outcome.failures.append("memory has grown")
    for name in ("descriptors", "threads", "processes"):
        if getattr(after, name) > getattr(before, name):
            outcome.failures.append(f"{name} have grown")
