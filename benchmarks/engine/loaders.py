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


class SmallLoader(DataLoader):
    """Draws a batch of 200 kB."""

    def __init__(self) -> None:
        super().__init__(None, 1, infinite=True)

    def generate_train_batch(self) -> dict[str, np.ndarray]:
        """Return the batch."""
        return {"data": np.random.standard_normal((1, 1, 50, 1000)).astype(np.float32)}


def volumes_for_monai(number: int) -> Any:
    """Return a MONAI data set of so many volumes of 64³, with random transforms."""
    from monai.data import Dataset
    from monai.transforms import Compose, RandAffined, RandFlipd, RandGaussianNoised

    generator = np.random.default_rng(0)
    items = [{"image": generator.random((1, 64, 64, 64), dtype=np.float32)} for _ in range(number)]
    transform = Compose(
        [
            RandFlipd("image", prob=0.5, spatial_axis=0),
            RandAffined(
                "image", prob=1.0, rotate_range=0.3, scale_range=0.1, padding_mode="border"
            ),
            RandGaussianNoised("image", prob=0.5),
        ]
    )
    return Dataset(items, transform)


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
        # A table that is drawn once: the same batches are slow under every system.
        is_tail = np.random.default_rng(20).random(1 << 14) < self.TAIL_PROBABILITY
        self.seconds = np.where(is_tail, seconds * self.TAIL_FACTOR, seconds)

    def generate_train_batch(self) -> dict[str, Any]:
        """Wait, and return a clone of the ready batch."""
        number = self.number.next()
        time.sleep(float(self.seconds[number % len(self.seconds)]))
        return {name: tensor.clone() for name, tensor in self._data.items()}
