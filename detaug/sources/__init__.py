"""Sources of raw batches: which of them fits a user's object, and so whether the loader counts as stateless (the
user says so, or `detaug.sources.batchgenerators.draws_every_batch_anew` does).

A source that is not stateless is stepped forward in order, a copy for each stream (`detaug.pipeline.streams`).
"""

from __future__ import annotations

import inspect
from typing import Any

from batchgenerators.dataloading.data_loader import DataLoader

from detaug.sources.base import DEFAULT_NUM_STREAMS, Source
from detaug.sources.batchgenerators import FiniteLoader, InfiniteLoader
from detaug.sources.dataset import DatasetSource
from detaug.sources.iterable import FactorySource, IterableSource, IteratorSource

__all__ = ["DEFAULT_NUM_STREAMS", "DatasetSource", "Source", "resolve_source"]


def resolve_source(loader: Any, stateless: bool | None = None, batches_per_epoch: int | None = None) -> Source:
    """The source for a loader, an iterator, an iterable, or a callable that makes one of these.

    Args:
        loader: the user's object.
        stateless: the user's declaration; None: stateless only where that is known.
        batches_per_epoch: an epoch's batches over all ranks; None: until the loader ends.

    Raises:
        TypeError: a generator object, a map-style data set, or something that gives no batches at all.
        ValueError: stateless=True for something that holds its position.
    """
    source = loader if isinstance(loader, Source) else _source_of(loader, stateless)
    source.batches_per_epoch = batches_per_epoch
    return source


def _source_of(loader: Any, stateless: bool | None) -> Source:
    if inspect.isgenerator(loader) or inspect.isasyncgen(loader):
        raise TypeError(
            f"{loader!r} is a generator object, which cannot be copied to other processes or started again. "
            "Pass the function that makes it: DeterministicAugmenter(make_batches, ...) and not make_batches()."
        )
    if isinstance(loader, DataLoader):
        return InfiniteLoader(loader, stateless) if loader.infinite else FiniteLoader(loader, stateless)
    if isinstance(loader, type) or not (hasattr(loader, "__next__") or hasattr(loader, "__iter__")):
        return _from_callable(loader, stateless)
    if hasattr(loader, "__next__"):
        return IteratorSource(loader, stateless)
    return IterableSource(loader, stateless)


def _from_callable(make_loader: Any, stateless: bool | None) -> Source:
    if hasattr(make_loader, "__getitem__") and hasattr(make_loader, "__len__"):
        raise TypeError(
            f"{type(make_loader).__name__} is a map-style data set; use "
            "DeterministicAugmenter.from_dataset(dataset, batch_size, ...)"
        )
    if not callable(make_loader):
        raise TypeError(
            "data_loader must be a batchgenerators loader, an iterator, an iterable, or a callable that makes one, "
            f"got {make_loader!r} of type {type(make_loader).__name__}"
        )
    made = make_loader()
    if inspect.isgenerator(made):
        return FactorySource(make_loader, stateless)
    if isinstance(made, type) or not (hasattr(made, "__next__") or hasattr(made, "__iter__")):
        raise TypeError(f"calling {make_loader!r} was to make a loader, but gave {made!r}")
    return _source_of(made, stateless)
