"""Run a pipeline as detaug, batchgenerators and torch run it, with equal settings.

Each function is a context manager that gives an endless iterator over batches. It raises an
`UnusableError` where the system cannot run the pipeline.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, redirect_stderr
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch.utils.data import DataLoader, IterableDataset

from detaug.errors import UnusableError
from detaug.transforms.building.base import Transform
from detaug.verification.handed_in import HandedIn


@dataclass(frozen=True)
class Workers:
    """How many worker processes make batches, the same for every system.

    Attributes:
        processes: worker processes.
        num_cached: batches that may wait for the training.
        wait_time: seconds between polls, where a system polls.
    """

    processes: int
    num_cached: int
    wait_time: float = 0.002

    @property
    def cached_per_process(self) -> int:
        """For systems that count the waiting batches of each worker by itself."""
        return max(1, self.num_cached // self.processes)


@contextmanager
def detaug(pipeline: HandedIn, workers: Workers) -> Iterator[Iterator[Any]]:
    """Run `DeterministicAugmenter` without its check, which makes one batch in a hundred twice."""
    with pipeline.augmenter(workers.processes, num_cached=workers.num_cached) as augmenter:
        yield _endless(augmenter)


@contextmanager
def nondet(loader: Any, transform: Any, workers: Workers) -> Iterator[Iterator[Any]]:
    """Run batchgenerators' `NonDetMultiThreadedAugmenter`, with which nnU-Net trains."""
    from batchgenerators.dataloading.nondet_multi_threaded_augmenter import (
        NonDetMultiThreadedAugmenter,
    )

    augmenter = NonDetMultiThreadedAugmenter(
        loader,
        transform,
        workers.processes,
        num_cached=workers.num_cached,
        wait_time=workers.wait_time,
    )
    try:
        yield _endless(augmenter)
    finally:
        # Its threads print tracebacks when they are stopped in the middle of a batch.
        with redirect_stderr(io.StringIO()):
            augmenter._finish()


@contextmanager
def torch_loader(loader: Any, transform: Any, workers: Workers) -> Iterator[Iterator[Any]]:
    """Run torch's `DataLoader`; each of its workers has the whole loader."""
    yield _endless(
        DataLoader(
            _Batches(loader, transform),
            batch_size=None,
            num_workers=workers.processes,
            # torch counts the batch that is being made, too.
            prefetch_factor=workers.cached_per_process + 1,
            multiprocessing_context="fork",
        )
    )


System = Callable[[HandedIn, Workers], AbstractContextManager[Iterator[Any]]]


def _of_loaders(system: Callable[..., AbstractContextManager[Iterator[Any]]]) -> System:
    """Return a system that takes a loader and a transform as one that takes a pipeline."""

    def run(pipeline: HandedIn, workers: Workers) -> AbstractContextManager[Iterator[Any]]:
        if getattr(pipeline.source, "batch_size", None) is not None:
            raise UnusableError("of data sets, only detaug's speed is measured")
        loader = pipeline.source.made().loader
        return system(loader, _drawing(pipeline.transform), workers)

    return run


SYSTEMS: dict[str, System] = {
    "detaug": detaug,
    "NonDetMultiThreadedAugmenter": _of_loaders(nondet),
    "torch's DataLoader": _of_loaders(torch_loader),
}


class _Batches(IterableDataset[Any]):
    def __init__(self, loader: Any, transform: Any) -> None:
        self.loader = loader
        self.transform = transform

    def __iter__(self) -> Iterator[Any]:
        loader = self.loader
        if not (hasattr(loader, "__next__") or hasattr(loader, "__iter__")):
            loader = loader()
        batches = loader if hasattr(loader, "__iter__") else iter(loader.__next__, None)
        for batch in batches:
            yield _transformed(self.transform, batch)


def _endless(batches: Any) -> Iterator[Any]:
    """Yield the batches of epoch after epoch."""
    while True:
        is_empty = True
        for batch in batches:
            is_empty = False
            yield batch
        if is_empty:
            raise UnusableError("the loader gives no batches")


def _transformed(transform: Any, batch: Any) -> Any:
    if transform is None:
        return batch
    if isinstance(batch, Mapping):
        return transform(**batch)
    return transform(batch)


def _drawing(transform: Any) -> Any:
    """Return a transform that needs no Generator: only detaug's augmenter passes one."""
    if not isinstance(transform, Transform):
        return transform

    def draw_and_transform(**batch: Any) -> Any:
        return transform(rng=np.random.default_rng(), **batch)

    return draw_and_transform
