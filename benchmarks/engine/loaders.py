"""The loaders that the rows run, endless as nnU-Net's is, and the systems that run them."""

from __future__ import annotations

import logging
import multiprocessing
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from batchgenerators.dataloading.data_loader import DataLoader

from benchmarks.nnunet.dataset import preprocessed
from benchmarks.nnunet.loaders import IN_3D, NNUNET, make_loader
from benchmarks.report import OURS
from benchmarks.settings import SEED
from detaug import DeterministicAugmenter, SeedTree, current
from detaug.nnunet.compatibility import loader_class
from detaug.seeding.generators import reseed_global_rngs
from detaug.tools.bench import systems
from detaug.tools.bench.systems import Workers

STOCK = "NonDetMultiThreadedAugmenter"
TORCH = "torch's DataLoader"

#: Two samples of one channel, nnU-Net's commonest 3-D patch: 16.8 MB float32 and 8.4 MB int16.
READY_SHAPE = (2, 1, 128, 128, 128)


# --- systems --------------------------------------------------------------------------------------


def detaug(loader: Any, workers: Workers, **options: Any) -> DeterministicAugmenter:
    """Start `DeterministicAugmenter` as people use it, with the run-time check."""
    return DeterministicAugmenter(
        loader,
        None,
        workers.processes,
        workers.num_cached,
        seed=SEED,
        **options,
    )


def nondet(loader: Any, workers: Workers) -> AbstractContextManager[Iterator[Any]]:
    """Start batchgenerators' NonDetMultiThreadedAugmenter, with which nnU-Net trains."""
    return systems.nondet(loader, None, workers)


def torch_loader(loader: Any, workers: Workers) -> AbstractContextManager[Iterator[Any]]:
    """Start torch's DataLoader over an iterable data set of ready-made batches."""
    return systems.torch_loader(loader, None, workers)


#: Each is a context manager that gives an endless iterator of batches.
SYSTEMS: dict[str, Callable[[Any, Workers], AbstractContextManager[Iterator[Any]]]] = {
    OURS: detaug,
    STOCK: nondet,
    TORCH: torch_loader,
}


# --- loaders --------------------------------------------------------------------------------------


def ready_batch() -> dict[str, torch.Tensor]:
    """Return a float32 image and an int16 segmentation of `READY_SHAPE`; starts no threads."""
    generator = np.random.default_rng(0)
    return {
        "data": torch.from_numpy(generator.random(READY_SHAPE, dtype=np.float32)),
        "target": torch.from_numpy(generator.integers(0, 4, READY_SHAPE, dtype=np.int16)),
    }


class ReadyLoader(DataLoader):
    """Clones a ready batch: what remains to be measured is the way to the consumer."""

    def __init__(self, batch: dict[str, torch.Tensor]) -> None:
        super().__init__(batch, READY_SHAPE[0], infinite=True)

    def generate_train_batch(self) -> dict[str, torch.Tensor]:
        """Return the clone."""
        return {name: tensor.clone() for name, tensor in self._data.items()}


class InSlotLoader(ReadyLoader):
    """Copies a ready batch to where it will travel, instead of cloning it; for detaug alone."""

    def generate_train_batch(self) -> dict[str, torch.Tensor]:
        """Return the copy."""
        batch = {}
        for name, tensor in self._data.items():
            source = tensor.numpy()
            array = current().empty(source.shape, source.dtype)
            np.copyto(array, source)
            batch[name] = torch.from_numpy(array)
        return batch


class HeavyTailLoader(ReadyLoader):
    """A batch takes 40 ms, and one in twenty, at random places, ten times that.

    It sleeps rather than computes: what is measured is what ordering costs, and not which neighbour
    had the core.
    """

    SECONDS = 0.040
    TAIL_PROBABILITY = 1 / 20
    TAIL_FACTOR = 10

    def __init__(self, batch: dict[str, torch.Tensor], number: Callable[[], int]) -> None:
        super().__init__(batch)
        self.number = number
        # A table that is drawn once: the same batches are slow under every system.
        is_tail = np.random.default_rng(20).random(1 << 14) < self.TAIL_PROBABILITY
        self.seconds = np.where(is_tail, self.SECONDS * self.TAIL_FACTOR, self.SECONDS)

    def generate_train_batch(self) -> dict[str, torch.Tensor]:
        """Wait, and return a clone of the ready batch."""
        time.sleep(float(self.seconds[self.number() % len(self.seconds)]))
        return super().generate_train_batch()


# --- the same batches under every system ----------------------------------------------------------


def batch_number_for(system: str) -> Callable[[], int]:
    """Return what tells a loader, under that system, which numbered batch it makes.

    Systems that number nothing get a counter that their workers share. So every system does the
    same work in the same order, whichever worker is free. (If each worker had a list of its own,
    the one with the cheaper list would deliver more of what is counted.)
    """
    if system == OURS:
        return _step
    return partial(_next, multiprocessing.get_context("fork").Value("q", 0))


def _step() -> int:
    return current().step


def _next(count: Any) -> int:
    with count.get_lock():
        number: int = count.value
        count.value = number + 1
    return number


def numbered_loader(root: Path, number: Callable[[], int]) -> Any:
    """Return nnU-Net's own 3-D loader with its own transforms, which draws from a batch's number.

    The transforms' gates make one batch cost several times another. With the same batches on both
    sides, what differs is the systems; the reseeding costs both the same 0.02 % of a batch.

    Args:
        root: of the data sets.
        number: says which batch is made.
    """
    # Its blur chooses an algorithm by timing, as it should here.
    logging.getLogger("detaug").addFilter(_is_unexpected)
    seeds = SeedTree(SEED)

    class NumberedLoader(loader_class()):  # type: ignore[misc]
        def generate_train_batch(self) -> dict[str, Any]:
            reseed_global_rngs(seeds.sequence(0, number()))
            return super().generate_train_batch()  # type: ignore[no-any-return]

    cases = preprocessed(root, IN_3D.configuration)
    return make_loader(NNUNET, IN_3D, cases, kind=NumberedLoader)


def _is_unexpected(record: logging.LogRecord) -> bool:
    return "benchmark=True" not in record.getMessage()
