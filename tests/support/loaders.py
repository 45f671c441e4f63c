"""Loaders and transforms that behave. Importable by workers of every start method."""

from __future__ import annotations

import random
import time
from typing import Any

import numpy as np
import torch
from batchgenerators.dataloading.data_loader import DataLoader, SlimDataLoaderBase

import detaug
from tests.support.witness import WITNESS, meet, witness

_chance = random.SystemRandom()


def dawdle(at_most: float) -> None:
    """Sleep for a time that no seed governs, at most that many seconds."""
    if at_most:
        time.sleep(_chance.uniform(0.0, at_most))


def draws(batch_size: int = 2) -> dict[str, Any]:
    """Numbers from each global generator and from the batch's own."""
    now = detaug.current()
    return {
        "python": [random.random() for _ in range(3)],
        "numpy": np.random.standard_normal((batch_size, 3, 5)).astype(np.float32),
        "torch": torch.rand(batch_size, 4),
        "own": now.generator.integers(2**62, size=3),
        "where": (now.epoch, now.step),
    }


class RandomLoader(SlimDataLoaderBase):
    """Endless, keeps nothing between batches; what it gives comes from random draws alone."""

    def __init__(self, batch_size: int = 2) -> None:
        super().__init__(None, batch_size)

    def generate_train_batch(self) -> dict[str, Any]:
        return {**draws(self.batch_size), WITNESS: witness()}


class RandomSampler(DataLoader):
    """batchgenerators' DataLoader with infinite=True: a batch needs nothing but its random draws."""

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
    """Endless and stateful: each batch holds a running sum of the draws of its stream so far."""

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
    """batchgenerators' DataLoader over `range(n)`; a batch is its list of indices."""

    def __init__(
        self,
        n: int,
        batch_size: int,
        threads: int = 1,
        seed_for_shuffle: int | None = 1,
        **options: Any,
    ):
        super().__init__(list(range(n)), batch_size, threads, seed_for_shuffle, **options)
        # One list under two names, as batchgenerators' own test loader has it.
        self.indices = self._data

    def generate_train_batch(self) -> list[int]:
        return list(self.get_indices())


class Noise:
    """A transform that draws from each global generator and from the batch's own; `scale` is a
    declared parameter.
    """

    def __init__(self, scale: float = 1.0, delay: float = 0.0) -> None:
        self.scale = scale
        self._delay = delay

    def __call__(self, **batch: Any) -> dict[str, Any]:
        dawdle(self._delay)
        batch["numpy"] = batch["numpy"] + self.scale * np.random.standard_normal(
            batch["numpy"].shape
        )
        batch["torch"] = batch["torch"] + torch.randn(batch["torch"].shape)
        batch["in transform"] = (random.random(), detaug.current().generator.random())
        return batch


class OtherNoise(Noise):
    """The same under another class name."""


class Samples(torch.utils.data.Dataset):
    """A map-style data set whose samples hold their index, a random draw and where they were made."""

    def __init__(self, n: int = 20) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> dict[str, Any]:
        now = detaug.current()
        return {
            "index": index,
            "draw": torch.rand(3),
            "own": now.generator.random(2),
            "epoch": now.epoch,
            "step": now.step,
            "sample": now.sample,
        }


class Pairs(torch.utils.data.Dataset):
    """Samples as (image, label) tuples, without a draw."""

    def __init__(self, n: int = 10) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.full((2, 2), float(index)), index
