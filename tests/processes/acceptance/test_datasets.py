"""torch's Datasets: map-style, and iterable ones, in whose eyes each stream is a worker of torch's."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from detaug import DeterministicAugmenter
from tests.support.augmenters import Maker
from tests.support.loaders import Pairs


@pytest.mark.parametrize("n", [0, 2])
@pytest.mark.parametrize("drop_last", [False, True])
def test_unshuffled_batches_are_those_of_torchs_loader(
    make: Maker, n: int, drop_last: bool
) -> None:
    augmenter = make.from_dataset(
        Pairs(10), 4, shuffle=False, drop_last=drop_last, num_processes=n, seed=1
    )
    reference = torch.utils.data.DataLoader(Pairs(10), 4, drop_last=drop_last)
    assert len(augmenter) == len(reference)
    for batch, expected in zip(augmenter, reference, strict=True):
        assert type(batch) is type(expected)
        for got, wanted in zip(batch, expected, strict=True):
            assert got.dtype == wanted.dtype
            assert torch.equal(got, wanted)


def stack(samples: list[tuple[torch.Tensor, int]]) -> dict[str, Any]:
    return {
        "data": np.stack([image.numpy() for image, _ in samples]),
        "labels": [label for _, label in samples],
    }


class AddOne:
    def __call__(self, **batch: Any) -> dict[str, Any]:
        return {**batch, "data": batch["data"] + 1}


@pytest.mark.parametrize("n", [0, 2])
def test_own_collate_function_and_transform(make: Maker, n: int) -> None:
    augmenter = make.from_dataset(
        Pairs(5), 2, shuffle=False, collate_fn=stack, transform=AddOne(), num_processes=n, seed=1
    )
    batches = list(augmenter)
    assert [batch["labels"] for batch in batches] == [[0, 1], [2, 3], [4]]
    assert batches[1]["data"][:, 0, 0].tolist() == [3.0, 4.0]


def test_default_number_of_processes_works() -> None:
    with DeterministicAugmenter.from_dataset(Pairs(4), 2, seed=1) as augmenter:
        assert len(list(augmenter)) == 2


LENGTH = 23


class Sharded(IterableDataset[Any]):
    """As torch's documentation has it: each worker takes its share; drawn from its seed and from
    the global generators.
    """

    def __init__(self, length: int = LENGTH) -> None:
        self.length = length

    def __iter__(self) -> Iterator[dict[str, Any]]:
        info = get_worker_info()
        first, step, seed = (0, 1, 0) if info is None else (info.id, info.num_workers, info.seed)
        assert info is None or info.dataset is self
        own = random.Random(seed)
        for index in range(first, self.length, step):
            yield {"index": index, "own": own.random(), "drawn": torch.rand(2)}


class Counted(Sharded):
    def __len__(self) -> int:
        return LENGTH


class Shuffling(Sharded):
    """Is told the epoch."""

    epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for item in super().__iter__():
            yield {**item, "epoch": self.epoch}


def indices(batches: Any) -> list[int]:
    return [int(index) for batch in batches for index in batch["index"]]


@pytest.mark.parametrize("kind", [Sharded, Counted, Shuffling])
@pytest.mark.parametrize("num_streams", [1, 3])
def test_each_item_comes_once_in_an_epoch(make: Maker, kind: Any, num_streams: int) -> None:
    augmenter = make.from_dataset(kind(), 4, num_processes=2, num_streams=num_streams, seed=1)
    epochs = [list(augmenter), list(augmenter)]
    assert [sorted(indices(epoch)) for epoch in epochs] == [list(range(LENGTH))] * 2
    assert not np.array_equal(epochs[0][0]["own"], epochs[1][0]["own"]), "two epochs have one seed"


def test_its_batches_are_those_of_a_torch_loader_with_as_many_workers(make: Maker) -> None:
    ours = make.from_dataset(Sharded(), 4, num_processes=2, num_streams=2, seed=1)
    theirs = DataLoader(Sharded(), 4, num_workers=2, multiprocessing_context="fork")
    assert [batch["index"].tolist() for batch in ours] == [
        batch["index"].tolist() for batch in theirs
    ]


def test_drop_last_leaves_the_short_batch_of_every_stream_out(make: Maker) -> None:
    whole = make.from_dataset(Sharded(), 4, num_processes=0, num_streams=2, drop_last=True, seed=1)
    assert [len(batch["index"]) for batch in whole] == [4] * 5
    assert len(make.from_dataset(Counted(), 4, num_processes=0, seed=1)) == 6
    assert len(make.from_dataset(Counted(), 4, num_processes=0, drop_last=True, seed=1)) == 5


class Configured(IterableDataset[Any]):
    """`worker_init_fn` says what a copy reads, as torch's documentation has it."""

    first, last = 0, LENGTH

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.first, self.last))


def configure(worker_id: int) -> None:
    info = get_worker_info()
    assert info is not None
    share = -(-LENGTH // info.num_workers)
    info.dataset.first, info.dataset.last = worker_id * share, min(LENGTH, (worker_id + 1) * share)


@pytest.mark.parametrize("n", [0, 2])
def test_worker_init_fn_configures_each_streams_copy(make: Maker, n: int) -> None:
    augmenter = make.from_dataset(
        Configured(), 4, num_processes=n, num_streams=3, worker_init_fn=configure, seed=1
    )
    assert sorted(int(i) for batch in augmenter for i in batch) == list(range(LENGTH))


class ReadyBatches(Sharded):
    def __iter__(self) -> Iterator[dict[str, Any]]:
        for item in super().__iter__():
            yield {"index": [item["index"]]}


def test_one_that_gives_batches_is_a_loader_whose_streams_share_them_out(make: Maker) -> None:
    for n in (0, 2):
        assert sorted(indices(make(ReadyBatches(), None, n, num_streams=3, seed=1))) == list(
            range(LENGTH)
        )


class Numbers(torch.utils.data.IterableDataset):
    """Says its length, right or wrong."""

    def __init__(self, number: int, said: int | None = None) -> None:
        self.number = number
        self.said = number if said is None else said

    def __len__(self) -> int:
        return self.said

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.number))


def test_an_iterable_data_set_with_a_length_knows_it(make: Maker) -> None:
    def of(**options: Any) -> DeterministicAugmenter:
        return make.from_dataset(Numbers(17), 3, num_processes=0, seed=1, **options)

    alone = of()
    assert len(alone) == len(alone.loader()) == len(list(alone)) == 6
    ranks = [of(rank=rank, world_size=2) for rank in range(2)]
    assert [[batch.tolist() for batch in rank] for rank in ranks] == [
        [[0, 1, 2], [6, 7, 8], [12, 13, 14]],
        [[3, 4, 5], [9, 10, 11], [15, 16]],
    ]
    with pytest.raises(ValueError, match="batches_per_epoch"):  # which streams end when?
        of(rank=0, world_size=2, num_streams=2)


@pytest.mark.parametrize(("said", "batches"), [(9, 6), (30, 6)])
def test_a_wrong_length_ends_no_epoch_of_a_single_rank(
    make: Maker, said: int, batches: int
) -> None:
    dataset = Numbers(17, said)
    assert len(list(make.from_dataset(dataset, 3, num_processes=0, seed=1))) == batches
