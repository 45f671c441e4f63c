"""Toy data for the tests of `aug.loader()`: which samples a batch has is seen at once."""

from __future__ import annotations

from functools import cache
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from detaug import DeterministicAugmenter
from detaug.augmenter.loader import AugmenterLoader

#: The samples of a batch.
Seen = tuple[int, ...]


class Numbers(Dataset[torch.Tensor]):
    """Twelve items: (its index, a random number)."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor([float(index), np.random.rand()])


def augmenter(workers: int = 0, batch_size: int = 2, **options: Any) -> DeterministicAugmenter:
    """Six batches an epoch."""
    return DeterministicAugmenter.from_dataset(
        Numbers(), batch_size, num_processes=workers, **{"seed": 3, **options}
    )


def loader(workers: int = 0, **options: Any) -> AugmenterLoader:
    return augmenter(workers, **options).loader()


def samples(batch: Any) -> Seen:
    return tuple(batch[:, 0].int().tolist())


def seen(batches: Any) -> list[Seen]:
    return [samples(batch) for batch in batches]


def epochs(number: int, **options: Any) -> list[list[Seen]]:
    """What a plain loop over the augmenter is given."""
    with augmenter(**options) as batches:
        return [seen(batches) for _ in range(number)]


@cache
def reference(name: str = "") -> list[list[Seen]]:
    """Five epochs. (Not while a test's module is imported, where batches are refused.)"""
    return epochs(5, name=name)


def in_a_row(epochs_of_a_run: list[list[Seen]]) -> list[Seen]:
    return list(chain.from_iterable(epochs_of_a_run))
