"""How each system is started and stopped around one loader, with equal settings.

Each function is a context manager that gives an endless iterator of batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from benchmarks.engine.loaders import BatchNumber, SharedCount, StepNumber
from benchmarks.report import OURS
from benchmarks.settings import SEED
from detaug import DeterministicAugmenter
from detaug.tools.bench import systems
from detaug.tools.bench.systems import Workers

STOCK = "NonDetMultiThreadedAugmenter"
TORCH = "torch's DataLoader"

System = Callable[[Any, Workers], AbstractContextManager[Iterator[Any]]]


def detaug(loader: Any, workers: Workers, **options: Any) -> DeterministicAugmenter:
    """Start `DeterministicAugmenter` as people use it, with the run-time check."""
    return DeterministicAugmenter(
        loader,
        None,
        workers.processes,
        workers.num_cached,
        wait_time=workers.wait_time,
        seed=SEED,
        **options,
    )


def nondet(loader: Any, workers: Workers) -> AbstractContextManager[Iterator[Any]]:
    """Start batchgenerators' NonDetMultiThreadedAugmenter, with which nnU-Net trains."""
    return systems.nondet(loader, None, workers)


def torch_loader(loader: Any, workers: Workers) -> AbstractContextManager[Iterator[Any]]:
    """Start torch's DataLoader over an iterable data set of ready-made batches."""
    return systems.torch_loader(loader, None, workers)


SYSTEMS: dict[str, System] = {OURS: detaug, STOCK: nondet, TORCH: torch_loader}


def batch_number_for(system: str) -> BatchNumber:
    """Return how a loader learns, under that system, which numbered batch it makes."""
    if system == OURS:
        return StepNumber()
    return SharedCount()
