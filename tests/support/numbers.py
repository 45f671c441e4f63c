"""Toy data whose samples are seen at once in a batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from detaug import DataLoader

#: The samples of a batch.
Seen = tuple[int, ...]


class Numbers(Dataset[torch.Tensor]):
    """Items: (index, a random number)."""

    def __init__(self, length: int = 12) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor([float(index), np.random.rand()])


class Count(IterableDataset[int]):
    """0 ... length - 1, shared out among workers."""

    def __init__(self, length: int = 7) -> None:
        self.length = length

    def __iter__(self) -> Iterator[int]:
        worker = get_worker_info()
        start, step = (0, 1) if worker is None else (worker.id, worker.num_workers)
        return iter(range(start, self.length, step))


class SizedCount(Count):
    def __len__(self) -> int:
        return self.length


def loader(length: int = 12, **options: Any) -> DataLoader[Any]:
    """Six batches of two an epoch, without workers."""
    return DataLoader(
        Numbers(length), **{"batch_size": 2, "shuffle": True, "seed": 3, "check": False, **options}
    )


def samples(batch: Any) -> Seen:
    return tuple(batch[:, 0].int().tolist())


def seen(batches: Iterable[Any]) -> list[Seen]:
    return [samples(batch) for batch in batches]


def epochs(number: int, **options: Any) -> list[list[Seen]]:
    """The batches of so many passes."""
    batches = loader(**options)
    return [seen(batches) for _ in range(number)]
