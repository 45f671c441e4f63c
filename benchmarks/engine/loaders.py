"""The loaders that the rows run: endless batchgenerators `DataLoader`s, as nnU-Net's is."""

from __future__ import annotations

import multiprocessing
import time
from typing import Any

import numpy as np
import torch
from batchgenerators.dataloading.data_loader import DataLoader

from detaug import current

#: Two samples of one channel, nnU-Net's commonest 3-D patch: 16.8 MB float32 and 8.4 MB int16.
READY_SHAPE = (2, 1, 128, 128, 128)


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


class StepNumber:
    """The number of the batch that detaug makes."""

    def next(self) -> int:
        """Return the number of the batch that is to be made now."""
        return current().step


class SharedCount:
    """The number of the batch for systems that number nothing: workers share one counter.

    So every system does the same work in the same order, whichever worker is free. (If each worker
    had a list of its own, the one with the cheaper list would deliver more of what is counted.)
    """

    def __init__(self) -> None:
        self._count = multiprocessing.get_context("fork").Value("q", 0)

    def next(self) -> int:
        """Return the number of the batch that is to be made now."""
        with self._count.get_lock():
            number: int = self._count.value
            self._count.value = number + 1
        return number


BatchNumber = StepNumber | SharedCount


class HeavyTailLoader(DataLoader):
    """A batch takes `seconds`, and one in twenty, at random places, ten times that.

    It sleeps rather than computes: what is measured is what ordering costs, and not which neighbour
    had the core.
    """

    TAIL_PROBABILITY = 1 / 20
    TAIL_FACTOR = 10

    def __init__(self, seconds: float, batch: dict[str, torch.Tensor], number: BatchNumber) -> None:
        super().__init__(batch, 1, infinite=True)
        self.number = number
        is_tail = np.random.default_rng(20).random(1 << 14) < self.TAIL_PROBABILITY
        self.seconds = np.where(is_tail, seconds * self.TAIL_FACTOR, seconds)

    def generate_train_batch(self) -> dict[str, Any]:
        """Wait, and return a clone of the ready batch."""
        number = self.number.next()
        time.sleep(float(self.seconds[number % len(self.seconds)]))
        return {name: tensor.clone() for name, tensor in self._data.items()}
