"""Loaders and transforms without a fault.

Workers of every start method can import this module.
"""

from __future__ import annotations

import random
import time
from typing import Any

import numpy as np
import torch
from batchgenerators.dataloading.data_loader import DataLoader, SlimDataLoaderBase

import detaug
from tests.support.witness import WITNESS, meet, witness

#: A generator that no seed governs.
_unseeded = random.SystemRandom()


def dawdle(at_most: float) -> None:
    """Sleep for a random time of at most `at_most` seconds, which no seed governs."""
    if at_most:
        time.sleep(_unseeded.uniform(0.0, at_most))


def draws(batch_size: int = 2) -> dict[str, Any]:
    """Return numbers from each global generator and from the batch's own Generator."""
    context = detaug.current()
    return {
        "python": [random.random() for _ in range(3)],
        "numpy": np.random.standard_normal((batch_size, 3, 5)).astype(np.float32),
        "torch": torch.rand(batch_size, 4),
        "own": context.generator.integers(2**62, size=3),
        "where": (context.epoch, context.step),
    }


class RandomLoader(SlimDataLoaderBase):
    """An endless loader that keeps nothing between batches: each is made of random draws alone."""

    def __init__(self, batch_size: int = 2) -> None:
        super().__init__(None, batch_size)

    def generate_train_batch(self) -> dict[str, Any]:
        return {**draws(self.batch_size), WITNESS: witness()}


class RandomSampler(DataLoader):
    """batchgenerators' DataLoader with infinite=True, whose batches depend on random draws alone.

    Args:
        batch_size: samples in a batch.
        delay: most seconds for which `dawdle` sleeps in each batch.
        meeting: folder at which the workers meet before their first batch; see `meet`.
        parties: number of processes that meet.
    """

    def __init__(
        self, batch_size: int = 2, delay: float = 0.0, meeting: str | None = None, parties: int = 1
    ) -> None:
        super().__init__(np.arange(1000), batch_size, infinite=True)
        self.indices = list(range(1000))
        self._delay = delay
        self._meeting = meeting
        self._parties = parties

    def generate_train_batch(self) -> dict[str, Any]:
        meet(self._meeting, self._parties)
        dawdle(self._delay)
        return {"indices": self.get_indices(), **draws(self.batch_size), WITNESS: witness()}


class Walker(SlimDataLoaderBase):
    """An endless stateful loader: each batch holds the sum of its stream's draws so far.

    The arguments are those of `RandomSampler`.
    """

    def __init__(
        self, batch_size: int = 2, delay: float = 0.0, meeting: str | None = None, parties: int = 1
    ) -> None:
        super().__init__(None, batch_size)
        self._position = np.zeros(3)
        self._turn = 0
        self._delay = delay
        self._meeting = meeting
        self._parties = parties

    def generate_train_batch(self) -> dict[str, Any]:
        meet(self._meeting, self._parties)
        dawdle(self._delay)
        self._position += np.random.standard_normal(3)
        self._turn += 1
        return {
            "thread": self.thread_id,
            "turn": self._turn,
            "position": self._position.copy(),
            **draws(self.batch_size),
            WITNESS: witness(),
        }


class IndexLoader(DataLoader):
    """batchgenerators' DataLoader over `range(n)`, whose batches are lists of indices."""

    def __init__(
        self,
        n: int,
        batch_size: int,
        threads: int = 1,
        seed_for_shuffle: int | None = 1,
        **options: Any,
    ):
        super().__init__(list(range(n)), batch_size, threads, seed_for_shuffle, **options)
        # The same list under two names, as in batchgenerators' own test loader.
        self.indices = self._data

    def generate_train_batch(self) -> list[int]:
        return list(self.get_indices())


class Noise:
    """A transform that draws from each global generator and from the batch's own Generator.

    `scale` is a declared parameter.
    """

    def __init__(self, scale: float = 1.0, delay: float = 0.0) -> None:
        self.scale = scale
        self._delay = delay

    def __call__(self, **batch: Any) -> dict[str, Any]:
        dawdle(self._delay)
        noise = np.random.standard_normal(batch["numpy"].shape)
        batch["numpy"] = batch["numpy"] + self.scale * noise
        batch["torch"] = batch["torch"] + torch.randn(batch["torch"].shape)
        batch["in transform"] = (random.random(), detaug.current().generator.random())
        return batch


class OtherNoise(Noise):
    """The same transform under another class name."""


class Samples(torch.utils.data.Dataset):
    """A map-style data set whose samples hold their index, draws, epoch, step and sample number."""

    def __init__(self, n: int = 20) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> dict[str, Any]:
        context = detaug.current()
        return {
            "index": index,
            "draw": torch.rand(3),
            "own": context.generator.random(2),
            "epoch": context.epoch,
            "step": context.step,
            "sample": context.sample,
        }


class Pairs(torch.utils.data.Dataset):
    """A map-style data set of (image, label) tuples that draws nothing."""

    def __init__(self, n: int = 10) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.full((2, 2), float(index)), index
