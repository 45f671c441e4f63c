"""What is measured, and for how long."""

from __future__ import annotations

import os
from dataclasses import dataclass

from detaug.seeding.tree import Seed

DETAUG, NONDET, TORCH = "detaug", "NonDetMultiThreadedAugmenter", "torch's DataLoader"
SYSTEMS = (DETAUG, NONDET, TORCH)

#: What is measured of the engine alone, beside the demo.
READY, INTEGER = "a ready batch of 25 MB", "a batch of one integer"
LOADS = (READY, INTEGER)

#: Seconds that a run of these takes at most: their batches come by the hundred.
ENGINE_SECONDS = 1.0

#: Batches that may wait for the training, for every system.
NUM_CACHED = 4


@dataclass(frozen=True)
class Settings:
    """The arguments of `detaug bench`.

    Attributes:
        target: where the factory is, as for `detaug.verify`; None: the demo.
        processes: worker processes, in ascending order.
        seconds: that each run is measured for; batches that take longer are waited for.
        seed: of DeterministicAugmenter.
    """

    target: str | None = None
    processes: tuple[int, ...] = ()
    seconds: float = 1.5
    seed: Seed = 1234

    @property
    def counts(self) -> tuple[int, ...]:
        """The process counts: those asked for, else 1, half of the cores, and all."""
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return tuple(sorted(set(self.processes or (1, max(1, cores // 2), cores))))


@dataclass(frozen=True)
class Run:
    """What one process is to measure.

    Attributes:
        settings: of all.
        system: which augmenter; empty: the transforms, one by one.
        processes: worker processes.
        step: seconds that the training takes for a batch; 0: it asks for the next at once.
        load: which of `LOADS`; empty: the pipeline.
    """

    settings: Settings
    system: str
    processes: int
    step: float = 0.0
    load: str = ""

    @property
    def seconds(self) -> float:
        """That it is measured for."""
        return min(self.settings.seconds, ENGINE_SECONDS) if self.load else self.settings.seconds
