"""What is no data set or no loader, and arguments of other libraries: the answer has the line to write."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset, SubsetRandomSampler

from detaug import DeterministicAugmenter

FROM_DATASET = "DeterministicAugmenter.from_dataset("


class Samples(Dataset):
    def __init__(self, number: int = 5) -> None:
        self.number = number

    def __len__(self) -> int:
        return self.number

    def __getitem__(self, i: int) -> int:
        return i


class Streaming(IterableDataset):
    def __iter__(self) -> Any:
        return iter(range(4))


class Unpicklable(list):
    def __reduce_ex__(self, _: Any) -> Any:
        raise TypeError("it has an open file")


class Loader:
    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __iter__(self) -> Any:
        return iter(self.folder)


@pytest.mark.parametrize(
    ("dataset", "error", "line"),
    [
        ("/data/cases", TypeError, FROM_DATASET + "MyDataset('/data/cases'), batch_size)"),
        (b"cases", TypeError, "is a path"),
        (Path("cases"), TypeError, "is a path"),
        (Samples, TypeError, FROM_DATASET + "Samples(...), batch_size)"),
        ([], ValueError, "the data set (list) is empty"),
        (Samples(0), ValueError, "the data set (Samples) is empty"),
        ({"train": [1, 2], "test": [3]}, TypeError, FROM_DATASET + "data['train'], batch_size)"),
        (
            DataLoader(Samples(), 3),
            TypeError,
            FROM_DATASET + "loader.dataset, batch_size=3, drop_last=False, shuffle=False",
        ),
        (iter(range(3)), TypeError, "goes to DeterministicAugmenter(data, transform, num_processes) itself"),
        ((i for i in range(3)), TypeError, FROM_DATASET + "list(samples), batch_size)"),
        (lambda: Samples(), TypeError, FROM_DATASET + "list(samples), batch_size)"),
        (None, TypeError, "got None of type NoneType"),
    ],
)
def test_what_is_no_data_set_is_refused_with_the_line_to_write(dataset: Any, error: type, line: str) -> None:
    with pytest.raises(error) as raised:
        DeterministicAugmenter.from_dataset(dataset, 2, num_processes=0)
    assert line in str(raised.value)


@pytest.mark.parametrize(
    ("loader", "error", "line"),
    [
        ("/data/cases", TypeError, "DeterministicAugmenter(MyLoader('/data/cases'), transform, num_processes)"),
        (Path("cases"), TypeError, "is a path"),
        (Samples, TypeError, FROM_DATASET + "Samples(...), batch_size, ...)"),
        (Samples(), TypeError, FROM_DATASET + "dataset, batch_size, ...)"),
        (Loader, TypeError, "DeterministicAugmenter(lambda: Loader(...), transform, num_processes)"),
        ((i for i in range(3)), TypeError, "and not make_batches()"),
        (lambda: "cases", TypeError, "is a path"),
        (lambda: Samples(), TypeError, "was to make a loader"),
    ],
)
def test_what_is_no_loader_is_refused_with_the_line_to_write(loader: Any, error: type, line: str) -> None:
    with pytest.raises(error) as raised:
        DeterministicAugmenter(loader, None, 0)
    assert line in str(raised.value)


@pytest.mark.parametrize(
    ("argument", "line"),
    [
        ({"num_workers": 4}, "num_workers=4: write num_processes=4"),
        ({"worker_count": 3}, "write num_processes=3"),
        ({"prefetch_factor": 2}, "write num_cached=2"),
        ({"sampler": range(5), "shuffle": True}, "each of sampler and shuffle=True says the order"),
        ({"sampler": range(5), "weights": [1] * 5}, "each of sampler and weights says the order"),
        ({"batch_sampler": [[1]]}, "batch_sampler gives whole batches, so that batch_size has no effect"),
        ({"sampler": (i for i in range(5))}, "sampler must have a length"),
        ({"sampler": Unpicklable()}, "sampler is copied for every epoch, and Unpicklable cannot be"),
        ({"generator": torch.Generator()}, "write seed=..."),
        ({"random_state": 3}, "write seed=3"),
        ({"persistent_workers": True}, "leave it out"),
        ({"timeout": 60}, "write executor=LocalProcesses(stall_timeout=60)"),
        ({"multiprocessing_context": "spawn"}, "write executor=LocalProcesses(start_method='spawn')"),
        ({"num_procesess": 4}, "did you mean num_processes=?"),
        ({"xyz": np.zeros(100)}, "help(DeterministicAugmenter)"),
    ],
    ids=lambda value: value if isinstance(value, str) else next(iter(value)),
)
def test_other_libraries_arguments_are_answered_with_ours(argument: dict[str, Any], line: str) -> None:
    with pytest.raises(TypeError) as raised:
        DeterministicAugmenter.from_dataset(Samples(), 2, **argument)
    assert line in str(raised.value)


@pytest.mark.parametrize(
    ("options", "error", "line"),
    [
        ({}, TypeError, "how many samples has a batch? Pass " + FROM_DATASET + "dataset, batch_size)"),
        ({"batch_sampler": [[1]], "drop_last": True}, TypeError, "drop_last has no effect"),
        ({"batch_size": 2, "weights": [1, 2]}, ValueError, "weights must be one for each of 5 samples, got shape (2,)"),
        ({"batch_size": 2, "weights": [1, 2, -1, 0, 0]}, ValueError, "got weights[2] = -1.0"),
        ({"batch_size": 2, "weights": [0] * 5}, ValueError, "must be positive and finite, got 0.0"),
        ({"batch_size": 2, "sampler": []}, ValueError, "the sampler gives no samples"),
        (
            {"batch_size": 2, "sampler": DistributedSampler(Samples(), 2, 0)},
            ValueError,
            "leave the sampler out, and pass rank=... and world_size=...",
        ),
    ],
)
def test_arguments_that_say_no_order_are_refused(options: dict[str, Any], error: type, line: str) -> None:
    with pytest.raises(error) as raised:
        DeterministicAugmenter.from_dataset(Samples(), **options)
    assert line in str(raised.value)


@pytest.mark.parametrize(
    "name",
    ["shuffle", "batch_size", "drop_last", "collate_fn", "sampler", "weights", "batch_sampler", "worker_init_fn"],
)
def test_a_loaders_samples_are_not_put_together_again(name: str) -> None:
    with pytest.raises(TypeError, match="from_dataset") as raised:
        DeterministicAugmenter([1, 2], None, 0, **{name: True})  # type: ignore[arg-type]
    assert f"no argument {name}=True" in str(raised.value)


def test_a_text_is_no_flag() -> None:
    with pytest.raises(TypeError, match="shuffle must be True or False, got 'False'"):
        DeterministicAugmenter.from_dataset(Samples(), 2, shuffle="False")  # type: ignore[arg-type]


def test_a_batch_larger_than_the_data_set_is_all_of_it_or_an_error_with_the_numbers() -> None:
    with DeterministicAugmenter.from_dataset(Samples(5), 8, num_processes=0) as augmenter:
        assert [sorted(batch.tolist()) for batch in augmenter] == [[0, 1, 2, 3, 4]]
    with pytest.raises(ValueError, match="pass batch_size=5 or less, or drop_last=False"):
        DeterministicAugmenter.from_dataset(Samples(5), 8, drop_last=True)


@pytest.mark.parametrize(
    ("loader", "line"),
    [
        (DataLoader(Samples(), 2), "loader.dataset, batch_size=2, drop_last=False, shuffle=False, num_processes=0)"),
        (
            DataLoader(Samples(), 2, shuffle=True, drop_last=True, num_workers=3),
            "loader.dataset, batch_size=2, drop_last=True, num_processes=3)",
        ),
        (
            DataLoader(Samples(), 2, sampler=SubsetRandomSampler([1, 2]), collate_fn=list, worker_init_fn=print),
            "sampler=loader.sampler, collate_fn=loader.collate_fn, worker_init_fn=loader.worker_init_fn, num_processes=0)",
        ),
        (
            DataLoader(Samples(), batch_sampler=[[1], [2, 3]]),
            "loader.dataset, batch_sampler=loader.batch_sampler, num_processes=0)",
        ),
        (DataLoader(Streaming(), 2), "loader.dataset, batch_size=2, drop_last=False, num_processes=0)"),
        (
            DataLoader(Samples(), None),
            "loader.dataset, batch_size=1, collate_fn=lambda batches: batches[0], shuffle=False, num_processes=0)",
        ),
    ],
)
def test_a_torch_loader_is_answered_with_the_line_that_does_what_it_does(loader: Any, line: str) -> None:
    with pytest.raises(TypeError) as raised:
        DeterministicAugmenter(loader, None, 0)
    assert line in str(raised.value)
    call = str(raised.value).partition("data set, ")[2]
    with eval(call) as augmenter, warnings.catch_warnings():  # the line is Python
        warnings.simplefilter("ignore")
        expected = [numbers_of(batch) for batch in loader] if loader.num_workers == 0 else []
        if expected and not isinstance(loader.sampler, SubsetRandomSampler):
            assert [numbers_of(batch) for batch in augmenter] == expected


def numbers_of(batch: Any) -> list[int]:
    return [int(number) for number in np.atleast_1d(batch)]


@pytest.mark.parametrize("argument", [{"shuffle": True}, {"sampler": [1]}, {"weights": [1]}, {"batch_sampler": [[1]]}])
def test_an_iterable_data_set_has_an_order_of_its_own(argument: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=f"so that {next(iter(argument))}.* has no effect"):
        DeterministicAugmenter.from_dataset(Streaming(), 2, **argument)
    with pytest.raises(TypeError, match="how many samples has a batch"):
        DeterministicAugmenter.from_dataset(Streaming())
