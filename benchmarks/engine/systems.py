"""How each system is started and stopped around one loader, with equal settings, and none held back.

Each function is a context manager that gives an endless iterator of batches. The imports are inside: a measurement's
process loads only what it measures.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib.util import find_spec
from itertools import chain
from typing import Any

from benchmarks.engine.loaders import BatchNumber, SharedCount, StepNumber
from benchmarks.engine.settings import Settings

SEED = 20261121


def detaug_augmenter(loader: Any, settings: Settings) -> AbstractContextManager[Iterator[Any]]:
    """DeterministicAugmenter, forked workers."""
    from detaug import DeterministicAugmenter

    processes, cached, wait_time = settings.processes, settings.num_cached, settings.wait_time
    return DeterministicAugmenter(loader, None, processes, cached, wait_time=wait_time, seed=SEED)


def nondet(loader: Any, settings: Settings) -> AbstractContextManager[Iterator[Any]]:
    """batchgenerators' NonDetMultiThreadedAugmenter, which nnU-Net trains with."""
    from batchgenerators.dataloading.nondet_multi_threaded_augmenter import (
        NonDetMultiThreadedAugmenter,
    )

    return _stock(NonDetMultiThreadedAugmenter, loader, settings, settings.num_cached)


def multi_threaded(loader: Any, settings: Settings) -> AbstractContextManager[Iterator[Any]]:
    """batchgenerators' MultiThreadedAugmenter, ordered by taking turns between its workers."""
    from batchgenerators.dataloading.multi_threaded_augmenter import MultiThreadedAugmenter

    return _stock(MultiThreadedAugmenter, loader, settings, settings.cached_per_process())


@contextmanager
def _stock(
    kind: Callable[..., Any], loader: Any, settings: Settings, cached: int
) -> Iterator[Iterator[Any]]:
    augmenter = kind(loader, None, settings.processes, cached, wait_time=settings.wait_time)
    try:
        yield augmenter
    finally:
        with silenced():
            augmenter._finish()


@contextmanager
def torch_loader(loader: Any, settings: Settings) -> Iterator[Iterator[Any]]:
    """torch's DataLoader over an iterable data set of ready-made batches."""
    from torch.utils.data import DataLoader, IterableDataset

    class Batches(IterableDataset[Any]):
        def __iter__(self) -> Iterator[Any]:
            return iter(loader)

    iterator = iter(
        DataLoader(
            Batches(),
            batch_size=None,
            num_workers=settings.processes,
            prefetch_factor=settings.cached_per_process() + 1,  # counts the batch in the making too
            multiprocessing_context="fork",
        )
    )
    try:
        yield iterator
    finally:
        iterator._shutdown_workers()  # type: ignore[attr-defined]  # what its own __del__ calls


@contextmanager
def grain_loader(loader: Any, settings: Settings) -> Iterator[Iterator[Any]]:
    """Grain's process prefetch. It shares memory for NumPy arrays only, so it is given those: its fast path."""
    with silenced():  # it warns that jax is missing, once in every process
        iterator = _start_grain(loader, settings)
        first = next(iterator)
    try:
        yield chain([first], iterator)
    finally:
        iterator.close()


def _start_grain(loader: Any, settings: Settings) -> Any:
    import grain

    batches = (
        grain.MapDataset.range(1 << 40)
        .map(_NumpyBatch(loader))
        # No reader threads: the batch is in memory already, and they would fight for the interpreter lock.
        .to_iter_dataset(grain.ReadOptions(num_threads=0, prefetch_buffer_size=0))
        .mp_prefetch(
            grain.MultiprocessingOptions(
                num_workers=settings.processes, per_worker_buffer_size=settings.cached_per_process()
            )
        )
    )
    return iter(batches)


class _NumpyBatch:
    """A batch of the loader with its tensors as arrays that share their memory; the index is not needed."""

    def __init__(self, loader: Any) -> None:
        self.loader = loader

    def __call__(self, _index: int) -> dict[str, Any]:
        import torch

        return {
            name: value.numpy() if isinstance(value, torch.Tensor) else value
            for name, value in next(self.loader).items()
        }


def bare(loader: Any, settings: Settings) -> AbstractContextManager[Iterator[Any]]:
    """No engine at all: `benchmarks.engine.bare`."""
    from benchmarks.engine.bare import bare_processes

    return bare_processes(loader, settings)


SYSTEMS: dict[str, Callable[[Any, Settings], AbstractContextManager[Iterator[Any]]]] = {
    "detaug": detaug_augmenter,
    "NonDetMultiThreadedAugmenter": nondet,
    "MultiThreadedAugmenter": multi_threaded,
    "torch": torch_loader,
    "Grain": grain_loader,
    "bare processes": bare,
}

#: Peers that may be absent, by the module that they are.
_OPTIONAL = {"Grain": "grain"}


def installed(names: Iterable[str]) -> list[str]:
    """Those that can be measured here."""
    return [
        name for name in names if name not in _OPTIONAL or find_spec(_OPTIONAL[name]) is not None
    ]


def batch_number_for(system: str) -> BatchNumber:
    """How a loader learns, under that system, which numbered batch it makes."""
    return StepNumber() if system == "detaug" else SharedCount()


@contextmanager
def silenced() -> Iterator[None]:
    """Nothing goes to stderr, of the processes that are started inside either."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
