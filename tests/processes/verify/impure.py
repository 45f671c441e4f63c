"""Pipelines that keep something from batch to batch: caches, which may, and what changes batches, which may not."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from batchgenerators.dataloading.data_loader import SlimDataLoaderBase
from torch.utils.data import Dataset

Batch = dict[str, Any]


class Loader(SlimDataLoaderBase):
    """Endless; keeps nothing."""

    def __init__(self) -> None:
        super().__init__(None, 2)

    def generate_train_batch(self) -> Batch:
        return {"data": np.random.standard_normal((2, 5))}


def _plus(batch: Batch, number: Any) -> Batch:
    return {**batch, "data": batch["data"] + float(number)}


# --- a cache of a data set: correct, whatever the order ----------------------------------------------------------------------


def _shard(number: int) -> Any:
    return np.random.default_rng(number).random((6, 3))


class OneShard(Dataset[Any]):
    """Keeps the shard that it read last."""

    def __init__(self) -> None:
        self.shard: Any = None
        self.number = -1

    def __len__(self) -> int:
        return 54

    def __getitem__(self, index: int) -> Any:
        number, row = divmod(index, 6)
        if self.shard is None or number != self.number:
            self.shard, self.number = _shard(number), number
        return {"row": self.shard[row], "index": index}


# --- state in transforms that a copy for every batch makes pure ---------------------------------------------------------------


class InADeque:
    def __init__(self) -> None:
        self.recent: deque[float] = deque(maxlen=7)

    def __call__(self, **batch: Any) -> Batch:
        self.recent.append(float(batch["data"].mean()))
        return _plus(batch, sum(self.recent))


class HalvedEveryEpoch:
    """`set_epoch` changes what it finds."""

    def __init__(self) -> None:
        self.sigma = 8.0

    def set_epoch(self, epoch: int) -> None:
        self.sigma *= 0.5

    def __call__(self, **batch: Any) -> Batch:
        return _plus(batch, self.sigma * np.random.standard_normal())


MADE_PURE: tuple[Callable[[], Any], ...] = (InADeque, HalvedEveryEpoch)


# --- loaders ------------------------------------------------------------------------------------------------------------------


class ShufflesItsList(SlimDataLoaderBase):
    """Shuffles a list of so many items where it is, and takes the first ones."""

    def __init__(self, items: int) -> None:
        super().__init__(None, 3)
        self.cases = list(range(items))

    def generate_train_batch(self) -> Batch:
        np.random.shuffle(self.cases)  # FAULT
        return {"data": np.array(self.cases[:3], dtype=np.float64)}


class OneAfterTheOther:
    def __init__(self, *transforms: Any) -> None:
        self.transforms = transforms

    def __call__(self, **batch: Any) -> Batch:
        for transform in self.transforms:
            batch = transform(**batch)
        return batch


class RaisesWhereTheClockIsWrong:
    """As a licence, a certificate or a time limit does."""

    def __call__(self, **batch: Any) -> Batch:
        if abs(time.time() - Path("/proc/self").stat().st_mtime) > 1e6:
            raise ValueError("it is another time")
        return batch


class RaisesInAnotherProcess:
    """As a library does that was set up in this process."""

    def __call__(self, **batch: Any) -> Batch:
        if str(os.getpid()) != os.readlink("/proc/self"):
            raise ValueError("it is another process")
        return batch


def transformed(*makes: Callable[[], Any]) -> Any:
    """A loader, with these transforms."""
    return Loader(), makes[0]() if len(makes) == 1 else OneAfterTheOther(*(make() for make in makes))
