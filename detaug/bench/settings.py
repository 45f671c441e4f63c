"""What is measured, and for how long."""

from __future__ import annotations

import os
from dataclasses import dataclass

from detaug.seeding.tree import Seed

DETAUG, NONDET, TORCH = "detaug", "NonDetMultiThreadedAugmenter", "torch's DataLoader"
SYSTEMS = (DETAUG, NONDET, TORCH)

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
    seconds: float = 2.0
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
    """

    settings: Settings
    system: str
    processes: int
    step: float = 0.0
