"""The examples of torch's own documentation of torch.utils.data, with one import changed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import BatchSampler, IterableDataset, Sampler, TensorDataset, get_worker_info

from detaug import DataLoader


class MyIterableDataset(IterableDataset[int]):
    """A range of numbers that ``__iter__`` splits among workers by `get_worker_info`."""

    def __init__(self, start: int, end: int) -> None:
        super().__init__()
        assert end > start, "this example only works with end >= start"
        self.start = start
        self.end = end

    def __iter__(self) -> Iterator[int]:
        worker_info = get_worker_info()
        if worker_info is None:
            iter_start = self.start
            iter_end = self.end
        else:
            per_worker = math.ceil((self.end - self.start) / float(worker_info.num_workers))
            worker_id = worker_info.id
            iter_start = self.start + worker_id * per_worker
            iter_end = min(iter_start + per_worker, self.end)
        return iter(range(iter_start, iter_end))


def test_an_iterable_that_splits_itself_by_worker_info() -> None:
    ds = MyIterableDataset(start=3, end=7)
    assert list(DataLoader(ds, seed=1)) == [torch.tensor([number]) for number in (3, 4, 5, 6)]
    by_two = DataLoader(ds, num_streams=2, seed=1)
    assert [int(batch) for batch in by_two] == [3, 5, 4, 6], "as torch's with num_workers=2"


class Whole(MyIterableDataset):
    """The same range, which ``__iter__`` does not split."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.start, self.end))


def worker_init_fn(worker_id: int) -> None:
    worker_info = get_worker_info()
    assert worker_info is not None
    dataset: Any = worker_info.dataset
    overall_start = dataset.start
    overall_end = dataset.end
    per_worker = math.ceil((overall_end - overall_start) / float(worker_info.num_workers))
    dataset.start = overall_start + worker_info.id * per_worker
    dataset.end = min(dataset.start + per_worker, overall_end)


def test_an_iterable_that_worker_init_fn_splits() -> None:
    ds = Whole(start=3, end=7)
    one = DataLoader(ds, worker_init_fn=worker_init_fn, seed=1)
    assert [int(batch) for batch in one] == [3, 4, 5, 6]
    two = DataLoader(ds, num_streams=2, worker_init_fn=worker_init_fn, seed=1)
    assert [int(batch) for batch in two] == [3, 5, 4, 6]
    assert [int(batch) for batch in two] == [3, 5, 4, 6]


class AccedingSequenceLengthSampler(Sampler[int]):
    def __init__(self, data: list[str]) -> None:
        self.data = data

    def __len__(self) -> int:
        return len(self.data)

    def __iter__(self) -> Iterator[int]:
        sizes = torch.tensor([len(x) for x in self.data])
        yield from torch.argsort(sizes).tolist()


class AccedingSequenceLengthBatchSampler(Sampler[list[int]]):
    def __init__(self, data: list[str], batch_size: int) -> None:
        self.data = data
        self.batch_size = batch_size

    def __len__(self) -> int:
        return (len(self.data) + self.batch_size - 1) // self.batch_size

    def __iter__(self) -> Iterator[list[int]]:
        sizes = torch.tensor([len(x) for x in self.data])
        for batch in torch.chunk(torch.argsort(sizes), len(self)):
            yield batch.tolist()


def test_samplers_and_batch_samplers_of_ones_own() -> None:
    data = ["ccc", "a", "dddd", "bb"]
    by_length = DataLoader(data, sampler=AccedingSequenceLengthSampler(data), seed=1)
    assert list(by_length) == [["a"], ["bb"], ["ccc"], ["dddd"]]
    batches = DataLoader(
        data, batch_sampler=AccedingSequenceLengthBatchSampler(data, batch_size=2), seed=1
    )
    assert list(batches) == [["a", "bb"], ["ccc", "dddd"]]


def test_a_batch_sampler_in_place_of_batching() -> None:
    # As documented, each batch is collated from the samples at the indices of the batch sampler.
    dataset = TensorDataset(torch.arange(5))
    sampler = BatchSampler(range(5), batch_size=2, drop_last=False)
    batches = list(DataLoader(dataset, batch_sampler=sampler, seed=1))
    assert [batch[0].tolist() for batch in batches] == [[0, 1], [2, 3], [4]]


class SimpleCustomBatch:
    def __init__(self, data: Any) -> None:
        transposed_data = list(zip(*data, strict=True))
        self.inp = torch.stack(transposed_data[0], 0)
        self.tgt = torch.stack(transposed_data[1], 0)

    def pin_memory(self) -> SimpleCustomBatch:
        self.inp = self.inp.pin_memory()
        self.tgt = self.tgt.pin_memory()
        return self


def collate_wrapper(batch: Any) -> SimpleCustomBatch:
    return SimpleCustomBatch(batch)


def test_a_custom_batch_type_that_pins_itself() -> None:
    inps = torch.arange(10 * 5, dtype=torch.float32).view(10, 5)
    tgts = torch.arange(10 * 5, dtype=torch.float32).view(10, 5)
    loader = DataLoader(
        TensorDataset(inps, tgts), batch_size=2, collate_fn=collate_wrapper, pin_memory=True, seed=1
    )
    for number, sample in enumerate(loader):
        assert torch.equal(sample.inp, inps[2 * number : 2 * number + 2])
        assert sample.inp.is_pinned() == sample.tgt.is_pinned() == torch.cuda.is_available()


def test_the_quick_start_tutorial() -> None:
    training_data = TensorDataset(torch.rand(20, 1, 4, 4), torch.randint(0, 3, (20,)))
    train_dataloader = DataLoader(training_data, batch_size=8, shuffle=True)
    test_dataloader = DataLoader(training_data, batch_size=8, shuffle=True)
    train_features, train_labels = next(iter(train_dataloader))
    assert train_features.shape == (8, 1, 4, 4)
    assert train_labels.shape == (8,)
    num_samples = 0
    for X, y in test_dataloader:  # noqa: N806
        num_samples += len(X)
        assert len(X) == len(y)
    assert num_samples == len(test_dataloader.dataset) == 20
    assert len(test_dataloader) == 3
