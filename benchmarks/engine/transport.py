"""Rows: how fast a ready 25 MB batch gets from a worker to the consumer.

What no engine is faster than is measured beside them: a clone and a copy in one process, and "bare processes", which do
nothing but copy and send one byte (`benchmarks.engine.bare`).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from statistics import median

import torch

from benchmarks.engine.loaders import InSlotLoader, ReadyLoader, ready_batch
from benchmarks.engine.settings import Settings
from benchmarks.engine.systems import SYSTEMS, installed
from benchmarks.engine.timing import seconds_per_batch
from benchmarks.report import Row, speed_checks
from detaug.bench.measuring import in_fresh_process, interleaved

NAMES = (
    "detaug",
    "NonDetMultiThreadedAugmenter",
    "MultiThreadedAugmenter",
    "torch",
    "Grain",
    "bare processes",
)
#: Whose loader makes its arrays where they travel.
IN_SLOT = ("detaug", "bare processes")
FLOOR = "clone + memcpy"
WARMUP, BATCHES, ROUNDS = 40, 300, 7
#: In its first seconds detaug makes its slots and pays for the checks of the first batches: 0.4 s of the workers' time at most,
#: and an interpreter with another hash seed, 2 s of a core once in a training. Afterwards it pays for one batch in a hundred.
WARMUP_SECONDS = 5.0

#: detaug's batches/s over theirs; at most twice the floor's time is at least half its batches/s.
BOUNDS = {"NonDetMultiThreadedAugmenter": 4.0, "torch": 3.0, "Grain": 2.5, FLOOR: 0.5}
IN_SLOT_BOUNDS = {"NonDetMultiThreadedAugmenter": 6.0}


def measure_transport(settings: Settings, names: Sequence[str] = NAMES) -> Row:
    """Batches/s in steady state for a consumer that takes each batch and lets the last one go."""
    return _measure(settings, names, "transport", BOUNDS)


def measure_transport_in_slot(settings: Settings, names: Sequence[str] = NAMES) -> Row:
    """The same where detaug's loader, and that of the bare processes, makes its arrays where they travel
    (`detaug.current().empty`); the others clone."""
    return _measure(settings, names, "transport, made in the slot", IN_SLOT_BOUNDS, in_slot=True)


def _measure(
    settings: Settings,
    names: Sequence[str],
    name: str,
    bounds: dict[str, float],
    in_slot: bool = False,
) -> Row:
    rounds, batches = settings.rounds(ROUNDS), settings.batches(BATCHES)

    def one(system: str) -> float:
        if system == FLOOR:
            return in_fresh_process(clone_and_copy, batches)
        return in_fresh_process(
            system_seconds, system, settings, batches, in_slot and system in IN_SLOT
        )

    seconds = interleaved((*installed(names), FLOOR), rounds, one)
    return Row(
        name=name,
        unit="batches/s",
        ours=1 / median(seconds["detaug"]),
        checks=speed_checks(seconds, bounds),
        repeats=rounds,
        settings={
            "processes": settings.processes,
            "num_cached": settings.num_cached,
            "batches": batches,
        },
        details={"seconds_per_batch": seconds},
    )


def system_seconds(system: str, settings: Settings, batches: int, in_slot: bool) -> float:
    """Seconds per batch of one system, measured in this process."""
    loader = InSlotLoader if in_slot else ReadyLoader
    with SYSTEMS[system](loader(ready_batch()), settings) as iterator:
        settle = WARMUP_SECONDS if system == "detaug" and not settings.quick else 0.0
        return seconds_per_batch(iterator, WARMUP, batches, None, settle)


def clone_and_copy(batches: int) -> float:
    """Seconds for cloning the ready batch and copying it into memory that is there already, in one process."""
    torch.set_num_threads(1)  # as in a worker
    batch = ready_batch()
    buffers = {name: torch.zeros_like(tensor) for name, tensor in batch.items()}

    def once() -> None:
        for name, tensor in batch.items():
            buffers[name].copy_(tensor.clone())

    for _ in range(WARMUP):
        once()
    begin = time.perf_counter()
    for _ in range(batches):
        once()
    return (time.perf_counter() - begin) / batches
