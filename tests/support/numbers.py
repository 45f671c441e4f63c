"""Toy data sets whose batches show which samples they hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from detaug import DataLoader

#: Indices of a batch's samples.
Seen = tuple[int, ...]


class Numbers(Dataset[torch.Tensor]):
    """A data set whose item `index` is (index, a random number)."""

    def __init__(self, length: int = 12) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor([float(index), np.random.rand()])


class Count(IterableDataset[int]):
    """An iterable data set of 0 ... length - 1, which workers split among themselves."""

    def __init__(self, length: int = 7) -> None:
        self.length = length

    def __iter__(self) -> Iterator[int]:
        worker = get_worker_info()
        if worker is None:
            return iter(range(self.length))
        return iter(range(worker.id, self.length, worker.num_workers))


class SizedCount(Count):
    """A `Count` that knows its length."""

    def __len__(self) -> int:
        return self.length


def loader(length: int = 12, **options: Any) -> DataLoader[Any]:
    """Return a loader of shuffled batches of two, without workers: by default six in an epoch."""
    defaults = {"batch_size": 2, "shuffle": True, "seed": 3, "check": False}
    return DataLoader(Numbers(length), **{**defaults, **options})


def samples(batch: Any) -> Seen:
    """Return the indices of the samples in a batch of `Numbers`."""
    return tuple(batch[:, 0].int().tolist())


def seen(batches: Iterable[Any]) -> list[Seen]:
    """Return the indices of the samples in each batch of `Numbers`."""
    return [samples(batch) for batch in batches]


def epochs(number: int, **options: Any) -> list[list[Seen]]:
    """Return the samples of every batch in each of the first `number` passes over a `loader`."""
    batches = loader(**options)
    return [seen(batches) for _ in range(number)]
