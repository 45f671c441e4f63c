"""The loaders that the rows run: all are endless batchgenerators `DataLoader`s, as nnU-Net's is."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch
from batchgenerators.dataloading.data_loader import DataLoader

#: Two samples of one channel, nnU-Net's commonest 3-D patch: 16.8 MB float32 and 8.4 MB int16.
READY_SHAPE = (2, 1, 128, 128, 128)


def ready_batch() -> dict[str, torch.Tensor]:
    """A float32 image and an int16 segmentation of `READY_SHAPE`, filled without starting torch's thread pool."""
    generator = np.random.default_rng(0)
    return {
        "data": torch.from_numpy(generator.random(READY_SHAPE, dtype=np.float32)),
        "target": torch.from_numpy(generator.integers(0, 4, READY_SHAPE, dtype=np.int16)),
    }


class ReadyLoader(DataLoader):
    """Clones a ready batch: what remains to be measured is the way from worker to consumer."""

    def __init__(self, batch: dict[str, torch.Tensor]) -> None:
        super().__init__(batch, READY_SHAPE[0], infinite=True)

    def generate_train_batch(self) -> dict[str, torch.Tensor]:
        return {name: tensor.clone() for name, tensor in self._data.items()}


class BatchNumber:
    """Which batch of a fixed, numbered list a worker is to make, so that every system does the same work.

    Args:
        workers: None under detaug, which says itself which step it makes. Otherwise the number of workers: worker w
            makes the batches w, w + workers, w + 2 * workers ...
    """

    def __init__(self, workers: int | None) -> None:
        self.workers = workers
        self._turn = 0

    def next(self, worker: int) -> int:
        """The number of the batch that is to be made now."""
        if self.workers is None:
            from detaug import current

            return current().step
        self._turn, turn = self._turn + 1, self._turn
        return worker + self.workers * turn


class HeavyTailLoader(DataLoader):
    """A tiny batch that takes `base` seconds, and one in twenty, at random places, ten times that.

    It sleeps rather than computes: what is measured is what ordering costs, and not which neighbour had the core.
    """

    TAIL_PROBABILITY = 1 / 20
    TAIL_FACTOR = 10

    def __init__(self, base: float, workers: int | None) -> None:
        super().__init__(None, 1, infinite=True)
        self.number = BatchNumber(workers)
        tail = np.random.default_rng(20).random(1 << 14) < self.TAIL_PROBABILITY
        self.seconds = np.where(tail, base * self.TAIL_FACTOR, base)

    def generate_train_batch(self) -> dict[str, Any]:
        number = self.number.next(self.thread_id)
        time.sleep(float(self.seconds[number % len(self.seconds)]))
        return {"data": np.full(1, number)}
