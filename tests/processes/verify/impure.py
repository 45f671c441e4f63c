"""Pipelines that keep something from batch to batch: caches, which may, and what changes batches, which may not."""

from __future__ import annotations

import os
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from batchgenerators.dataloading.data_loader import SlimDataLoaderBase
from torch import nn
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


# --- caches of data sets: correct, whatever the order ----------------------------------------------------------------------


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


class LeastRecentlyUsed(OneShard):
    """Keeps three shards, and a list of which was used when."""

    def __init__(self) -> None:
        self.shards: dict[int, Any] = {}
        self.used: list[int] = []

    def __getitem__(self, index: int) -> Any:
        number, row = divmod(index, 6)
        if number in self.shards:
            self.used.remove(number)
        else:
            if len(self.used) == 3:
                del self.shards[self.used.pop(0)]
            self.shards[number] = _shard(number)
        self.used.append(number)
        return {"row": self.shards[number][row], "index": index}


class CountedInBytes(OneShard):
    """Evicts when it holds more than so many bytes."""

    def __init__(self) -> None:
        self.shards: OrderedDict[int, Any] = OrderedDict()
        self.nbytes = 0

    def __getitem__(self, index: int) -> Any:
        number, row = divmod(index, 6)
        if number not in self.shards:
            self.shards[number] = _shard(number)
            self.nbytes += self.shards[number].nbytes
        while self.nbytes > 500:
            self.nbytes -= self.shards.popitem(last=False)[1].nbytes if len(self.shards) > 1 else self.nbytes
        return {"row": self.shards[number][row], "index": index}


class AllCaches(OneShard):
    """One data set over all of them."""

    def __init__(self) -> None:
        self.parts = [OneShard(), LeastRecentlyUsed(), CountedInBytes()]

    def __getitem__(self, index: int) -> Any:
        return {str(number): part[index]["row"] for number, part in enumerate(self.parts)}


# --- state in transforms that a copy for every batch makes pure ---------------------------------------------------------------


class InADeque:
    def __init__(self) -> None:
        self.recent: deque[float] = deque(maxlen=7)

    def __call__(self, **batch: Any) -> Batch:
        self.recent.append(float(batch["data"].mean()))
        return _plus(batch, sum(self.recent))


class InABuffer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mean: torch.Tensor
        self.register_buffer("mean", torch.zeros(()))

    def forward(self, **batch: Any) -> Batch:
        self.mean.mul_(0.8).add_(float(batch["data"].mean()))
        return _plus(batch, self.mean)


def in_a_closure() -> Callable[..., Batch]:
    calls = 0

    def transform(**batch: Any) -> Batch:
        nonlocal calls
        calls += 3
        return _plus(batch, calls)

    return transform


class HalvedEveryEpoch:
    """`set_epoch` changes what it finds."""

    def __init__(self) -> None:
        self.sigma = 8.0

    def set_epoch(self, epoch: int) -> None:
        self.sigma *= 0.5

    def __call__(self, **batch: Any) -> Batch:
        return _plus(batch, self.sigma * np.random.standard_normal())


class MadeOnFirstUse:
    """Makes its generator when it is called first, with a fixed seed."""

    def __init__(self) -> None:
        self.ready = False
        self.rng: Any = None

    def __call__(self, **batch: Any) -> Batch:
        if not self.ready:
            self.rng = np.random.default_rng(5)
            self.ready = True
        return _plus(batch, self.rng.random())


MADE_PURE: tuple[Callable[[], Any], ...] = (InADeque, InABuffer, in_a_closure, HalvedEveryEpoch, MadeOnFirstUse)


# --- what nothing can copy ----------------------------------------------------------------------------------------------------


class InItsClass:
    last = 0.0

    def __call__(self, **batch: Any) -> Batch:
        InItsClass.last = 0.5 * InItsClass.last + float(batch["data"].mean())  # FAULT
        return _plus(batch, InItsClass.last)


class InADequeOfItsClass:
    recent: deque[float] = deque(maxlen=4)  # noqa: RUF012

    def __call__(self, **batch: Any) -> Batch:
        self.recent.append(float(batch["data"].mean()))  # FAULT
        return _plus(batch, sum(self.recent))


_CALLS = 100


class InItsModule:
    def __call__(self, **batch: Any) -> Batch:
        global _CALLS
        _CALLS += 5  # FAULT
        return _plus(batch, _CALLS)


_SEEN: Counter[str] = Counter()


class InACounterOfItsModule:
    def __call__(self, **batch: Any) -> Batch:
        _SEEN["batches"] += 1  # FAULT
        return _plus(batch, _SEEN["batches"])


NOT_EQUAL = (InItsClass, InADequeOfItsClass, InItsModule, InACounterOfItsModule)


# --- loaders ------------------------------------------------------------------------------------------------------------------


class ShufflesItsList(SlimDataLoaderBase):
    """Shuffles a list of so many items where it is, and takes the first ones."""

    def __init__(self, items: int) -> None:
        super().__init__(None, 3)
        self.cases = list(range(items))

    def generate_train_batch(self) -> Batch:
        np.random.shuffle(self.cases)  # FAULT
        return {"data": np.array(self.cases[:3], dtype=np.float64)}


class Noisy(Dataset[Any]):
    """Items with noise from generators of its own, in places where nobody looks."""

    def __init__(self) -> None:
        self.annotations = [{"name": f"case {number}"} for number in range(30)]
        self.noise = partial(np.random.default_rng(3).normal, 0.0)

    def __len__(self) -> int:
        return len(self.annotations)

    def __getitem__(self, index: int) -> Any:
        return torch.tensor([float(index), self.noise(0.25)])


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
