"""A pipeline as detaug, batchgenerators and torch run it, with equal settings.

Each function is a context manager that gives an iterator over an epoch's batches, or an endless one.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, redirect_stderr
from typing import Any

import numpy as np
from torch.utils.data import DataLoader, IterableDataset, default_collate

from detaug.sources import DatasetSource, TorchIterable
from detaug.sources.orders import Sampled, Weighted
from detaug.transforms.building.base import Transform
from detaug.verification.handed_in import HandedIn

#: Batches that may wait for the training, for every system.
NUM_CACHED = 4


class NotForThis(ValueError):
    """The pipeline cannot be run by that system; the message says why."""


@contextmanager
def detaug(made: HandedIn, processes: int) -> Iterator[Iterator[Any]]:
    """`DeterministicAugmenter`, without its check, which makes one batch in a hundred twice."""
    with made.augmenter(processes, num_cached=NUM_CACHED) as augmenter:
        yield _endless(augmenter)


@contextmanager
def nondet(made: HandedIn, processes: int) -> Iterator[Iterator[Any]]:
    """batchgenerators' `NonDetMultiThreadedAugmenter`."""
    from batchgenerators.dataloading.nondet_multi_threaded_augmenter import NonDetMultiThreadedAugmenter

    if isinstance(made.source, DatasetSource) or getattr(made.source, "batch_size", None) is not None:
        raise NotForThis("it takes loaders of batches, not data sets")
    loader, transform = made.source.made().loader, _drawing(made.transform)
    augmenter = NonDetMultiThreadedAugmenter(loader, transform, processes, num_cached=NUM_CACHED, wait_time=0.002)
    try:
        yield _endless(augmenter)
    finally:
        with redirect_stderr(
            io.StringIO()
        ):  # its threads print tracebacks when they are stopped in the middle of a batch
            augmenter._finish()


@contextmanager
def torch_loader(made: HandedIn, processes: int) -> Iterator[Iterator[Any]]:
    """torch's `DataLoader`; of a loader of batches every worker has the whole."""
    options: dict[str, Any] = {"num_workers": processes, "prefetch_factor": max(2, NUM_CACHED // processes + 1)}
    source, transform = made.source, _drawing(made.transform)
    if isinstance(source, TorchIterable) or isinstance(getattr(source, "order", None), (Sampled, Weighted)):
        raise NotForThis(
            "of data sets that are iterated, or have a sampler or weights, only detaug's speed is measured"
        )
    if isinstance(source, DatasetSource) and source.batch_size is not None:
        collate = source.collate_fn or default_collate
        loader: Any = DataLoader(
            source.loader, source.batch_size, source.shuffle, drop_last=source.drop_last,
            worker_init_fn=source.worker_init_fn,
            collate_fn=lambda samples: _transformed(transform, collate(samples)), **options,
        )  # fmt: skip
    else:
        loader = DataLoader(_Batches(source.made().loader, transform), batch_size=None, **options)
    yield _endless(loader)


SYSTEMS: dict[str, Callable[[HandedIn, int], AbstractContextManager[Iterator[Any]]]] = {
    "detaug": detaug,
    "NonDetMultiThreadedAugmenter": nondet,
    "torch's DataLoader": torch_loader,
}


class _Batches(IterableDataset[Any]):
    def __init__(self, loader: Any, transform: Any) -> None:
        self.loader, self.transform = loader, transform

    def __iter__(self) -> Iterator[Any]:
        loader = self.loader if hasattr(self.loader, "__next__") or hasattr(self.loader, "__iter__") else self.loader()
        for batch in loader if hasattr(loader, "__iter__") else iter(loader.__next__, None):
            yield _transformed(self.transform, batch)


def _endless(batches: Any) -> Iterator[Any]:
    """Epoch after epoch."""
    while True:
        number = -1
        for number, batch in enumerate(batches):  # noqa: B007  # how many there were
            yield batch
        if number < 0:
            raise NotForThis("the loader gives no batches")


def _transformed(transform: Any, batch: Any) -> Any:
    if transform is None:
        return batch
    return transform(**batch) if isinstance(batch, Mapping) else transform(batch)


def _drawing(transform: Any) -> Any:
    """detaug's transforms take a Generator, and outside of an augmenter of detaug's nobody passes one."""
    if not isinstance(transform, Transform):
        return transform
    return lambda **batch: transform(rng=np.random.default_rng(), **batch)
