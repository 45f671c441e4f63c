"""The loaders that the rows run: all are endless batchgenerators `DataLoader`s, as nnU-Net's is."""

from __future__ import annotations

import multiprocessing
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
        """The clone."""
        return {name: tensor.clone() for name, tensor in self._data.items()}


class InSlotLoader(ReadyLoader):
    """Copies a ready batch to where it will travel, instead of cloning it."""

    def generate_train_batch(self) -> dict[str, torch.Tensor]:
        # What detaug.current().empty calls; bare processes have no current batch.
        from detaug.memory.batch_memory import empty

        batch = {}
        for name, tensor in self._data.items():
            source = tensor.numpy()
            array = empty(source.shape, source.dtype)
            np.copyto(array, source)
            batch[name] = torch.from_numpy(array)
        return batch


class StepNumber:
    """detaug says itself which batch it makes."""

    def next(self) -> int:
        """The number of the batch that is to be made now."""
        from detaug import current

        return current().step


class SharedCount:
    """For systems that number nothing: forked workers draw 0, 1, 2 ... from one counter.

    Every system so does the same work in the same order, whichever worker is free. (Were each worker to go through a
    list of its own, the one with the cheaper list would deliver more of what is counted.)
    """

    def __init__(self) -> None:
        self._count = multiprocessing.get_context("fork").Value("q", 0)

    def next(self) -> int:
        """The number of the batch that is to be made now."""
        with self._count.get_lock():
            number: int = self._count.value
            self._count.value = number + 1
        return number


BatchNumber = StepNumber | SharedCount


class HeavyTailLoader(DataLoader):
    """A batch that takes `base` seconds, and one in twenty, at random places, ten times that.

    It sleeps rather than computes: what is measured is what ordering costs, and not which neighbour had the core.

    Args:
        base: seconds.
        batch: what is cloned after the wait; None for a batch of eight bytes.
        number: which batch of the fixed list is made.
    """

    TAIL_PROBABILITY = 1 / 20
    TAIL_FACTOR = 10

    def __init__(
        self, base: float, batch: dict[str, torch.Tensor] | None, number: BatchNumber
    ) -> None:
        super().__init__(batch, 1, infinite=True)
        self.number = number
        tail = np.random.default_rng(20).random(1 << 14) < self.TAIL_PROBABILITY
        self.seconds = np.where(tail, base * self.TAIL_FACTOR, base)

    def generate_train_batch(self) -> dict[str, Any]:
        number = self.number.next()
        time.sleep(float(self.seconds[number % len(self.seconds)]))
        if self._data is None:
            return {"data": np.full(1, number)}
        return {name: tensor.clone() for name, tensor in self._data.items()}
