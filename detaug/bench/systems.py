"""A pipeline as detaug, batchgenerators and torch run it, with equal settings.

Each function is a context manager that gives an iterator over an epoch's batches, or an endless one; an `UnusableError` where the
pipeline cannot be run by that system.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, redirect_stderr
from typing import Any

import numpy as np
from torch.utils.data import DataLoader, IterableDataset

from detaug.errors import UnusableError
from detaug.transforms.building.base import Transform
from detaug.verification.handed_in import HandedIn

#: Batches that may wait for the training, for every system.
NUM_CACHED = 4


@contextmanager
def detaug(made: HandedIn, processes: int) -> Iterator[Iterator[Any]]:
    """`DeterministicAugmenter`, without its check, which makes one batch in a hundred twice."""
    with made.augmenter(processes, num_cached=NUM_CACHED) as augmenter:
        yield _endless(augmenter)


@contextmanager
def nondet(made: HandedIn, processes: int) -> Iterator[Iterator[Any]]:
    """batchgenerators' `NonDetMultiThreadedAugmenter`."""
    from batchgenerators.dataloading.nondet_multi_threaded_augmenter import (
        NonDetMultiThreadedAugmenter,
    )

    loader, transform = _loader_of(made), _drawing(made.transform)
    augmenter = NonDetMultiThreadedAugmenter(
        loader, transform, processes, num_cached=NUM_CACHED, wait_time=0.002
    )
    try:
        yield _endless(augmenter)
    finally:
        # Its threads print tracebacks when they are stopped in the middle of a batch.
        with redirect_stderr(io.StringIO()):
            augmenter._finish()


@contextmanager
def torch_loader(made: HandedIn, processes: int) -> Iterator[Iterator[Any]]:
    """torch's `DataLoader`, of whose workers every one has the whole loader."""
    batches = _Batches(_loader_of(made), _drawing(made.transform))
    prefetched = max(2, NUM_CACHED // processes + 1)
    yield _endless(
        DataLoader(batches, batch_size=None, num_workers=processes, prefetch_factor=prefetched)
    )


SYSTEMS: dict[str, Callable[[HandedIn, int], AbstractContextManager[Iterator[Any]]]] = {
    "detaug": detaug,
    "NonDetMultiThreadedAugmenter": nondet,
    "torch's DataLoader": torch_loader,
}


def _loader_of(made: HandedIn) -> Any:
    if getattr(made.source, "batch_size", None) is not None:
        raise UnusableError("of data sets, only detaug's speed is measured")
    return made.source.made().loader


class _Batches(IterableDataset[Any]):
    def __init__(self, loader: Any, transform: Any) -> None:
        self.loader, self.transform = loader, transform

    def __iter__(self) -> Iterator[Any]:
        loader = (
            self.loader
            if hasattr(self.loader, "__next__") or hasattr(self.loader, "__iter__")
            else self.loader()
        )
        for batch in loader if hasattr(loader, "__iter__") else iter(loader.__next__, None):
            yield _transformed(self.transform, batch)


def _endless(batches: Any) -> Iterator[Any]:
    """Epoch after epoch."""
    while True:
        number = -1
        for number, batch in enumerate(batches):  # noqa: B007  # how many there were
            yield batch
        if number < 0:
            raise UnusableError("the loader gives no batches")


def _transformed(transform: Any, batch: Any) -> Any:
    if transform is None:
        return batch
    return transform(**batch) if isinstance(batch, Mapping) else transform(batch)


def _drawing(transform: Any) -> Any:
    """detaug's transforms take a Generator, and outside of an augmenter of detaug's nobody passes one."""
    if not isinstance(transform, Transform):
        return transform
    return lambda **batch: transform(rng=np.random.default_rng(), **batch)
