"""Run a pipeline as detaug, batchgenerators and torch run it, with equal settings.

Each function is a context manager that gives an endless iterator over batches. It raises an
`UnusableError` where the system cannot run the pipeline.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, redirect_stderr
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch.utils.data import DataLoader, IterableDataset, Sampler

from detaug.errors import UnusableError
from detaug.pipeline.sources import Source
from detaug.pipeline.sources.collation import collated
from detaug.pipeline.sources.orders import Order
from detaug.transforms.building.base import Transform
from detaug.verification.factories import FactoryResult

#: The words that orders of data sets are drawn from. Any will do: batches are not compared.
ORDER_SEED = (1, 2, 3, 4)

#: Seconds between the polls of `NonDetMultiThreadedAugmenter`. Its own default, 20 ms, would
#: dominate the time of short batches.
WAIT_TIME = 0.002


@dataclass(frozen=True)
class Workers:
    """The worker processes that make batches, the same for every system.

    Attributes:
        processes: worker processes.
        num_cached: batches that may wait for the training.
    """

    processes: int
    num_cached: int

    @property
    def cached_per_process(self) -> int:
        """The waiting batches of one worker, for systems that count them by worker."""
        return max(1, self.num_cached // self.processes)


@contextmanager
def detaug(pipeline: FactoryResult, workers: Workers) -> Iterator[Iterator[Any]]:
    """Run `DeterministicAugmenter` without its check, which makes one batch in a hundred twice."""
    # The other systems have no check. What it costs is measured in `benchmarks`.
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
        wait_time=WAIT_TIME,
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
    # An iterable data set without batch size, because the loader makes whole batches itself.
    batches = _Batches(loader, transform)
    # Closing the generator ends torch's workers now, not at some garbage collection.
    with closing(
        _endless(DataLoader(batches, batch_size=None, **_torch_options(workers)))
    ) as endless:
        yield endless


def _torch_options(workers: Workers) -> dict[str, Any]:
    """Return the arguments of torch's `DataLoader` that say how its workers run."""
    return {
        "num_workers": workers.processes,
        # torch counts the batch that is being made, too.
        "prefetch_factor": workers.cached_per_process + 1,
        # As the other systems do, so that the pipeline need not be picklable.
        "multiprocessing_context": "fork",
    }


@contextmanager
def _torch_samples(source: Any, transform: Any, workers: Workers) -> Iterator[Iterator[Any]]:
    """Run torch's `DataLoader` over the samples of a data set, in the orders that detaug takes."""
    options = _torch_options(workers)
    options["collate_fn"] = _Collated(source.collate_fn, transform)
    options["worker_init_fn"] = source.worker_init_fn
    order = getattr(source, "order", None)
    # An IterableDataset has no order.
    if order is None:
        options.update(batch_size=source.batch_size, drop_last=source.drop_last)
    elif order.gives_batches:
        options.update(batch_sampler=_Epochs(order))
    else:
        options.update(
            batch_size=source.batch_size, drop_last=source.drop_last, sampler=_Epochs(order)
        )
    with closing(_endless(DataLoader(source.loader, **options))) as endless:
        yield endless


# --- pipelines ------------------------------------------------------------------------------------

OURS = "detaug"

System = Callable[[FactoryResult, Workers], AbstractContextManager[Iterator[Any]]]


def _nondet_of(pipeline: FactoryResult, workers: Workers) -> AbstractContextManager[Iterator[Any]]:
    """Run a pipeline under `NonDetMultiThreadedAugmenter`."""
    source = pipeline.source.in_this_process()
    if _gives_samples(source):
        raise UnusableError("it takes loaders of batches, and this is a data set")
    return nondet(source.loader, _drawing(pipeline.transform), workers)


def _torch_loader_of(
    pipeline: FactoryResult, workers: Workers
) -> AbstractContextManager[Iterator[Any]]:
    """Run a pipeline under torch's `DataLoader`."""
    source = pipeline.source.in_this_process()
    transform = _drawing(pipeline.transform)
    if _gives_samples(source):
        return _torch_samples(source, transform, workers)
    return torch_loader(source.loader, transform, workers)


SYSTEMS: dict[str, System] = {
    OURS: detaug,
    "NonDetMultiThreadedAugmenter": _nondet_of,
    "torch's DataLoader": _torch_loader_of,
}


def _gives_samples(source: Source) -> bool:
    """Return True for a data set, whose samples are put together to batches."""
    return getattr(source, "batch_size", None) is not None


class _Epochs(Sampler[Any]):
    """The order of a data set, epoch after epoch."""

    def __init__(self, order: Order) -> None:
        self.order = order
        self.epoch = 0

    def __len__(self) -> int:
        return self.order.length

    def __iter__(self) -> Iterator[Any]:
        # The same kind of order as detaug's, so that shuffling costs both the same.
        entries = self.order.entries(ORDER_SEED, self.epoch, 0, self.order.length)
        self.epoch += 1
        return iter(entries)


class _Collated:
    """A collate function that combines samples as detaug does, and transforms the batch."""

    def __init__(self, collate_fn: Callable[[list[Any]], Any] | None, transform: Any) -> None:
        self.collate_fn = collate_fn
        self.transform = transform

    def __call__(self, samples: list[Any]) -> Any:
        return _transformed(self.transform, collated(samples, self.collate_fn))


class _Batches(IterableDataset[Any]):
    """The transformed batches of a loader, of which every worker has a copy."""

    def __init__(self, loader: Any, transform: Any) -> None:
        self.loader = loader
        self.transform = transform

    def __iter__(self) -> Iterator[Any]:
        # A callable makes its loader here, in the worker, as detaug's workers do.
        loader = self.loader
        if not (hasattr(loader, "__next__") or hasattr(loader, "__iter__")):
            loader = loader()
        if hasattr(loader, "__iter__"):
            batches = iter(loader)
        else:
            # An object with ``__next__`` alone; no batch is None.
            batches = iter(loader.__next__, None)
        for batch in batches:
            yield _transformed(self.transform, batch)


def _endless(batches: Any) -> Generator[Any, None, None]:
    """Yield the batches of epoch after epoch."""
    while True:
        # A loader that is empty would be asked for ever.
        is_empty = True
        for batch in batches:
            is_empty = False
            yield batch
        if is_empty:
            raise UnusableError("the loader gives no batches")


def _transformed(transform: Any, batch: Any) -> Any:
    """Return the transformed batch; a mapping goes to the transform as its keyword arguments."""
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
        # One for each call, as detaug makes one for each sample. Its bytes do not matter here.
        return transform(rng=np.random.default_rng(), **batch)

    return draw_and_transform
