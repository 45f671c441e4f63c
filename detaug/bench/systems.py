"""A pipeline as detaug, batchgenerators and torch run it, with equal settings.

Each function is a context manager that gives a function; that gives an iterator over an epoch's batches, or endless ones.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch.utils.data import DataLoader, IterableDataset, default_collate

from detaug.bench.settings import DETAUG, NONDET, NUM_CACHED, TORCH, Run
from detaug.engine.augmenter import DeterministicAugmenter
from detaug.sources import DatasetSource
from detaug.transforms.building.base import Transform
from detaug.verification.handed_in import HandedIn

Epochs = Callable[[], Iterator[Any]]


class NotForThis(ValueError):
    """The pipeline cannot be run by that system; the message says why."""


@contextmanager
def running(run: Run, made: HandedIn) -> Iterator[Epochs]:
    """The pipeline under the run's system.

    Raises:
        NotForThis: it cannot be.
    """
    start = {DETAUG: _detaug, NONDET: _nondet, TORCH: _torch}[run.system]
    with start(run, made) as epochs:
        yield epochs


@contextmanager
def _detaug(run: Run, made: HandedIn) -> Iterator[Epochs]:
    augmenter = DeterministicAugmenter(
        made.source, made.transform, run.processes, NUM_CACHED, seed=run.settings.seed, num_streams=made.num_streams,
        batches_per_epoch=made.batches_per_epoch, keep=made.keep, check_every=0,
        rank=0, world_size=1,
    )  # fmt: skip
    with augmenter:
        yield lambda: iter(augmenter)


@contextmanager
def _nondet(run: Run, made: HandedIn) -> Iterator[Epochs]:
    from batchgenerators.dataloading.nondet_multi_threaded_augmenter import NonDetMultiThreadedAugmenter

    if isinstance(made.source, DatasetSource):
        raise NotForThis("it takes loaders of batches, not data sets")
    augmenter = NonDetMultiThreadedAugmenter(
        made.source.made().loader, _drawing(made.transform), run.processes, num_cached=NUM_CACHED, wait_time=0.002
    )
    try:
        yield lambda: augmenter
    finally:
        with _silenced():  # its threads print tracebacks when they are stopped in the middle of a batch
            augmenter._finish()


@contextmanager
def _torch(run: Run, made: HandedIn) -> Iterator[Epochs]:
    options: dict[str, Any] = {"num_workers": run.processes, "prefetch_factor": max(2, NUM_CACHED // run.processes + 1)}
    transform = _drawing(made.transform)
    if isinstance(made.source, DatasetSource):
        source = made.source
        collate = _Collate(source.collate_fn or default_collate, transform)
        loader: Any = DataLoader(source.loader, source.batch_size, source.shuffle, collate_fn=collate, **options)
    else:
        loader = DataLoader(_Batches(made.source.made().loader, transform), batch_size=None, **options)
    yield lambda: iter(loader)


@dataclass
class _Collate:
    """A batch of samples, transformed."""

    collate: Callable[[list[Any]], Any]
    transform: Any

    def __call__(self, samples: list[Any]) -> Any:
        return _transformed(self.transform, self.collate(samples))


@dataclass
class _Batches(IterableDataset[Any]):
    """A loader's batches, transformed; every worker has the whole loader."""

    loader: Any
    transform: Any

    def __iter__(self) -> Iterator[Any]:
        loader = self.loader if hasattr(self.loader, "__next__") or hasattr(self.loader, "__iter__") else self.loader()
        for batch in iter(loader) if hasattr(loader, "__iter__") else iter(loader.__next__, None):
            yield _transformed(self.transform, batch)


def _transformed(transform: Any, batch: Any) -> Any:
    if transform is None:
        return batch
    return transform(**batch) if isinstance(batch, Mapping) else transform(batch)


def _drawing(transform: Any) -> Any:
    """Detaug's transforms want a Generator, and outside of an augmenter of detaug's nobody passes one."""
    return _Drawing(transform) if isinstance(transform, Transform) else transform


class _Drawing:
    def __init__(self, transform: Transform) -> None:
        self.transform = transform

    def __call__(self, **batch: Any) -> Any:
        return self.transform(rng=np.random.default_rng(), **batch)


@contextmanager
def _silenced() -> Iterator[None]:
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
