"""Every kind of source: a batch is a pure function of (seed, epoch, step), whoever makes it, and
ranks share its epochs out.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from batchgenerators.dataloading.data_loader import DataLoaderFromDataset
from batchgenerators.dataloading.dataset import Dataset
from batchgenerators.examples.multithreaded_dataloading import DummyDLWithShuffle
from torch.utils.data import (
    BatchSampler,
    RandomSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from detaug import DeterministicAugmenter, Skip
from tests.processes.acceptance.test_datasets import Sharded
from tests.processes.acceptance.test_loaders import UnevenStreams
from tests.processes.acceptance.test_skipped_errors import BadItems
from tests.processes.purity.ways import run_all_ways, with_workers
from tests.support.comparing import fingerprints_of
from tests.support.faults import RaisesAt
from tests.support.loaders import IndexLoader, Noise, Samples, Walker
from tests.support.loaders import RandomSampler as Sampler
from tests.support.witness import without_witness

LENGTH = 17


class Reiterable:
    """Makes a new generator for each pass."""

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for i in range(11):
            yield {"i": i, "draw": random.random()}


class OwnGenerator:
    """Endless, without thread ids."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)

    def __iter__(self) -> OwnGenerator:
        return self

    def __next__(self) -> dict[str, Any]:
        return {"draw": random.random(), "own": self.rng.random()}


class Told(SubsetRandomSampler):
    """Its order depends on the epoch that it is told."""

    def set_epoch(self, epoch: int) -> None:
        self.indices = self.indices[epoch % 3 :] + self.indices[: epoch % 3]


class Squares(Dataset):
    """batchgenerators' kind."""

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, item: int) -> dict[str, Any]:
        return {"index": int(item), "data": np.full((1, 2), item**2, np.float32)}


def count() -> Iterator[int]:
    yield from range(9)


def a_function_that_counts() -> Callable[[], Iterator[int]]:
    return partial(count)


Build = Callable[..., DeterministicAugmenter]
#: Its streams do not end together, so that there is no number of batches that all ranks get.
WITH_GAPS = "streams of different lengths"
#: Batches of an epoch, where the loader does not say how many.
NUM_BATCHES_NOT_SAID = {
    "an iterable": 11,
    "a function that makes a generator": 9,
    "an iterable data set": 9,
}
THE_SAME_EVERY_EPOCH = {
    "a list",
    "a function that makes a generator",
    "streams of different lengths",
    "items that are skipped",
}


def loader(make_loader: Callable[[], Any], transform: Any = None, **own: Any) -> Build:
    return lambda num_processes, **options: DeterministicAugmenter(
        make_loader(), transform, num_processes, **{"seed": 19, **own, **options}
    )


samples = partial(Samples, LENGTH)


def data_set(make_data: Callable[[], Any] = samples, **own: Any) -> Build:
    return lambda num_processes, **options: DeterministicAugmenter.from_dataset(
        make_data(), num_processes=num_processes, **{"seed": 19, **own, **options}
    )


SOURCES: dict[str, Build] = {
    "any step": loader(Sampler, Noise(), batches_per_epoch=11, num_streams=4),
    "streams": loader(Walker, Noise(), batches_per_epoch=11, num_streams=4),
    "an endless iterator with a generator of its own": loader(
        OwnGenerator, batches_per_epoch=11, num_streams=4
    ),
    "a finite DataLoader in three streams": loader(
        partial(IndexLoader, 21, 2, 3, return_incomplete=True)
    ),
    "a shuffled one without a seed": loader(partial(IndexLoader, 21, 2, 3, None)),
    "a loader that shuffles by itself": loader(
        partial(DummyDLWithShuffle, 3), batches_per_epoch=11
    ),
    "a loader from batchgenerators' data set": loader(
        lambda: DataLoaderFromDataset(Squares(), 3, 2, return_incomplete=True, shuffle=True)
    ),
    "a list": loader(lambda: [*range(9)], num_streams=1),
    "an iterable": loader(Reiterable, num_streams=1),
    "a function that makes a generator": loader(a_function_that_counts, num_streams=1),
    "streams of different lengths": loader(UnevenStreams),
    "errors that are skipped": loader(
        partial(RaisesAt, (0, 3, 4, 9), epochs=(0, 2)),
        batches_per_epoch=12,
        stateless=False,
        on_error=Skip(),
    ),
    "items that are skipped": loader(partial(BadItems, 20, 2, 2, shuffle=False), on_error=Skip()),
    "a data set": data_set(batch_size=2),
    "an iterable data set": data_set(partial(Sharded, LENGTH), batch_size=2, num_streams=3),
    "a sampler": data_set(batch_size=3, sampler=RandomSampler(Samples(LENGTH))),
    "a sampler with a generator": data_set(
        batch_size=3, sampler=RandomSampler(range(LENGTH), generator=torch.Generator())
    ),
    "a sampler of a subset": data_set(batch_size=3, sampler=SubsetRandomSampler(range(3, 16))),
    "a weighted sampler": data_set(
        batch_size=3, sampler=WeightedRandomSampler([*range(LENGTH)], 14)
    ),
    "a sampler that is told the epoch": data_set(batch_size=3, sampler=Told([*range(LENGTH)])),
    "an order": data_set(batch_size=3, sampler=[*range(LENGTH), 3, 2, 1]),
    "a batch sampler": data_set(batch_sampler=BatchSampler(RandomSampler(range(LENGTH)), 3, False)),
    "buckets": data_set(batch_sampler=[[0, 4, 5], [1], [2, 3], [6, 7, 8, 9], [16, 10], [12, 13]]),
}


#: One of each class of source. What the others differ in, their order, is known before a worker
#: has a batch to make.
IN_WORKERS = (
    "any step",
    "streams",
    "an endless iterator with a generator of its own",
    "a finite DataLoader in three streams",
    "a function that makes a generator",
    "streams of different lengths",
    "errors that are skipped",
    "items that are skipped",
    "a data set",
    "an iterable data set",
    "a sampler that is told the epoch",
)


def in_workers_or_slow() -> Iterator[Any]:
    """Yield a case for every source, with workers where they might change a batch."""
    for source in SOURCES:
        yield pytest.param(source, with_workers(source, IN_WORKERS), id=source)
        if source not in IN_WORKERS:
            yield pytest.param(source, (0, 2), marks=pytest.mark.slow, id=f"{source}, in workers")


@pytest.mark.parametrize(("source", "processes"), list(in_workers_or_slow()))
def test_batches_are_the_same_for_any_workers_killed_resumed_and_replayed(
    source: str, processes: tuple[int, ...]
) -> None:
    def make(num_processes: int) -> DeterministicAugmenter:
        return SOURCES[source](num_processes, check=int(not num_processes))

    found = run_all_ways(make, processes)
    for batches in found.batches.values():
        batches.update({key: without_witness(batch) for key, batch in batches.items()})
    assert not [words for words in found.words if "voxel spacing is zero" not in words]
    assert found.different() == []
    whole = [set(found.batches[f"{number} workers"]) for number in processes]
    assert whole[0] == whole[-1]
    epochs = [fingerprints_of(found.epoch("0 workers", epoch)) for epoch in (0, 2)]
    assert min(map(len, epochs)) > 3
    assert (epochs[0] == epochs[1]) == (source in THE_SAME_EVERY_EPOCH)


def by_step(augmenter: DeterministicAugmenter) -> dict[int, str]:
    """An epoch's batches."""
    found = {}
    for batch in augmenter:
        found[augmenter._schedule.last_position.step] = fingerprints_of([batch])[0]
    return found


def of_each_class_or_slow() -> Iterator[Any]:
    """Yield a case for every source; those that differ in their order alone are slow."""
    for source in SOURCES:
        if source != WITH_GAPS:
            marks = () if source in IN_WORKERS else pytest.mark.slow
            yield pytest.param(source, marks=marks)


@pytest.mark.parametrize("source", list(of_each_class_or_slow()))
def test_ranks_share_every_epoch_out(source: str) -> None:
    build = SOURCES[source]
    num_batches = NUM_BATCHES_NOT_SAID.get(source)
    length = {} if num_batches is None else {"batches_per_epoch": num_batches}
    whole = build(0, **length)
    expected = [by_step(whole), by_step(whole)]
    ranks = [build(0, rank=rank, world_size=3, tail="pad", **length) for rank in range(3)]
    for epoch in expected:
        shares = [by_step(augmenter) for augmenter in ranks]
        for rank, share in enumerate(shares):
            assert {step % 3 for step in share} == {rank}
        shared = {step: print_ for share in shares for step, print_ in share.items()}
        assert {step: print_ for step, print_ in shared.items() if step <= max(epoch)} == epoch
