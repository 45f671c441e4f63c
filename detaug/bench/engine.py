"""Loaders that leave nothing to be measured but the engine: the way of a ready batch, and what every batch costs.

`python -m benchmarks.engine` runs them too, with more rounds and against more systems.
"""

from __future__ import annotations

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


class ReadyLoader(DataLoader):  # type: ignore[misc]  # batchgenerators has no types
    """Clones a ready batch: what remains to be measured is the way from worker to consumer."""

    def __init__(self, batch: dict[str, torch.Tensor]) -> None:
        super().__init__(batch, READY_SHAPE[0], infinite=True)

    def generate_train_batch(self) -> dict[str, torch.Tensor]:
        """The clone."""
        return {name: tensor.clone() for name, tensor in self._data.items()}


class Integers(DataLoader):  # type: ignore[misc]
    """The same small number over and over."""

    def __init__(self) -> None:
        super().__init__(None, 1, infinite=True)

    def generate_train_batch(self) -> int:
        """A batch of one integer."""
        return 7
