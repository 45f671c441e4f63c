"""Wrong data sets, loaders and arguments of other libraries get an error with the line to write."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import (
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
)

import detaug
from detaug import DeterministicAugmenter

NO_DATA_SET = "a data set must be map-style"


class Samples(Dataset):
    def __init__(self, number: int = 5) -> None:
        self.number = number

    def __len__(self) -> int:
        return self.number

    def __getitem__(self, i: int) -> int:
        return i


class Streaming(IterableDataset):
    """An iterable data set."""

    def __iter__(self) -> Any:
        return iter(range(4))


class Unpicklable(list):
    """A list that cannot be copied."""

    def __reduce_ex__(self, _: Any) -> Any:
        raise TypeError("it has an open file")


class Loader:
    """A loader class that needs an argument."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __iter__(self) -> Any:
        return iter(self.folder)


@pytest.mark.parametrize(
    ("dataset", "error", "line"),
    [
        ("/data/cases", TypeError, NO_DATA_SET),
        (Path("cases"), TypeError, NO_DATA_SET),
        (Samples, TypeError, "pass an instance of one"),
        ([], ValueError, "the data set (list) is empty"),
        ({"train": [1, 2], "test": [3]}, TypeError, NO_DATA_SET),
        (DataLoader(Samples(), 3), TypeError, "pass its data set"),
        (
            iter(range(3)),
            TypeError,
            "makes batches itself to DeterministicAugmenter(data, transform, num_processes)",
        ),
        ((i for i in range(3)), TypeError, "list(samples)"),
        (None, TypeError, "got None of type NoneType"),
    ],
)
def test_what_is_no_data_set_is_refused_with_the_line_to_write(
    dataset: Any, error: type, line: str
) -> None:
    with pytest.raises(error) as raised:
        DeterministicAugmenter.from_dataset(dataset, 2, num_processes=0)
    assert line in str(raised.value)


def a_path() -> str:
    return "cases"


def a_data_set() -> Samples:
    return Samples()


@pytest.mark.parametrize(
    ("loader", "line"),
    [
        ("/data/cases", "is a path"),
        (Path("cases"), "is a path"),
        (Samples, "from_dataset(dataset, batch_size, ...)"),
        (Samples(), "from_dataset(dataset, batch_size, ...)"),
        (Loader, "missing 1 required positional argument: 'folder'"),
        ((i for i in range(3)), "and not make_batches()"),
        (a_path, "is a path"),
        (a_data_set, "was to make a loader"),
        (3, "must be a batchgenerators loader"),
        (DataLoader(Samples(), 2), "make a detaug.DataLoader instead"),
    ],
)
def test_what_is_no_loader_is_refused_with_the_line_to_write(loader: Any, line: str) -> None:
    with pytest.raises(TypeError) as raised:
        DeterministicAugmenter(loader, None, 0)
    assert line in str(raised.value)


@pytest.mark.parametrize(
    ("options", "error", "line"),
    [
        ({"num_workers": 4}, TypeError, "num_workers=4: write num_processes=4"),
        ({"prefetch_factor": 2}, TypeError, "write num_cached=2"),
        (
            {"sampler": range(5), "shuffle": True},
            TypeError,
            "shuffle and sampler each define the order",
        ),
        (
            {"sampler": range(5), "batch_sampler": [[1]]},
            TypeError,
            "sampler and batch_sampler each define the order",
        ),
        (
            {"batch_sampler": [[1]]},
            TypeError,
            "batch_sampler gives whole batches: leave out batch_size",
        ),
        ({"sampler": (i for i in range(5))}, TypeError, "sampler must have a length"),
        (
            {"sampler": Unpicklable()},
            TypeError,
            "sampler is copied for every epoch, and Unpicklable cannot be",
        ),
        ({"generator": torch.Generator()}, TypeError, "write seed=..."),
        ({"persistent_workers": True}, TypeError, "leave it out"),
        ({"timeout": 60}, TypeError, "write executor=LocalProcesses(stall_timeout=60)"),
        (
            {"multiprocessing_context": "spawn"},
            TypeError,
            "write executor=LocalProcesses(start_method='spawn')",
        ),
        ({"num_procesess": 4}, TypeError, "did you mean num_processes=?"),
        ({"xyz": np.zeros(100)}, TypeError, "help(DeterministicAugmenter)"),
        ({"batchsize": 4, "batch_size": None}, TypeError, "did you mean batch_size=?"),
        (
            {"batch_size": None},
            TypeError,
            "from_dataset needs batch_size, the number of samples in a batch",
        ),
        ({"batch_size": 1.5}, TypeError, "batch_size must be a positive integer, got 1.5"),
        ({"batch_size": "16"}, TypeError, "got '16' of type str: write 16, or int(...)"),
        ({"batch_size": -1}, ValueError, "batch_size must be at least 1, got -1"),
        ({"batch_size": 0}, ValueError, "batch_size must be at least 1, got 0"),
        (
            {"batch_sampler": [[1]], "batch_size": None, "drop_last": True},
            TypeError,
            "leave out batch_size and drop_last",
        ),
        ({"shuffle": "False"}, TypeError, "shuffle must be True or False, got 'False'"),
        (
            {"batch_size": 8, "drop_last": True},
            ValueError,
            "pass a smaller batch_size, or drop_last=False",
        ),
        ({"sampler": []}, ValueError, "the sampler gives 0 samples"),
        (
            {"sampler": DistributedSampler(Samples(), 2, 0)},
            ValueError,
            "out, and pass rank=... and world_size=...",
        ),
    ],
)
def test_arguments_that_do_not_fit_are_answered_with_what_to_write(
    options: dict[str, Any], error: type, line: str
) -> None:
    with pytest.raises(error) as raised:
        DeterministicAugmenter.from_dataset(Samples(), **{"batch_size": 2, **options})
    assert line in str(raised.value)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"n_processes": 3}, "no argument n_processes=3: did you mean num_processes=?"),
        ({"num_workers": 3}, "no argument num_workers=3: write num_processes=3"),
        ({"processes": 3}, "no argument processes=3: did you mean num_processes=?"),
    ],
)
def test_a_misspelled_argument_is_told_before_the_one_that_is_missing_for_it(
    options: dict[str, Any], line: str
) -> None:
    with pytest.raises(TypeError) as raised:
        DeterministicAugmenter([1, 2], None, **options)
    assert line in str(raised.value)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'num_processes'"):
        DeterministicAugmenter([1, 2], None)  # type: ignore[call-arg]


class PassesOn(DeterministicAugmenter[Any]):
    """A subclass with an argument of its own, which passes all others on."""

    def __init__(self, *arguments: Any, label: str = "", **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.label = label


def test_a_subclass_passes_arguments_on_and_has_its_own() -> None:
    augmenter = PassesOn.from_dataset(Samples(), 2, num_processes=0, seed=9, label="train")
    assert augmenter.seed == 9
    assert augmenter.label == "train"
    with pytest.raises(TypeError, match=r"did you mean label=\?"):
        PassesOn.from_dataset(Samples(), 2, num_processes=0, labels="train")


class Long(Samples):
    """A data set, iterable and batch sampler that claims any length, or raises instead."""

    def __init__(self, length: Any) -> None:
        super().__init__(3)
        self.length = length

    def __len__(self) -> int:
        if isinstance(self.length, Exception):
            raise self.length
        return self.length  # type: ignore[no-any-return]

    def __iter__(self) -> Any:
        return iter(range(3))


def as_data_set(data: Any) -> None:
    DeterministicAugmenter.from_dataset(data, 2)


def as_batch_sampler(data: Any) -> None:
    DeterministicAugmenter.from_dataset(Samples(), batch_sampler=data)


def as_iterable(data: Any) -> None:
    DeterministicAugmenter(data, None, 0)


def as_data_set_of_a_loader(data: Any) -> None:
    list(detaug.DataLoader(data, 2))


def as_batch_sampler_of_a_loader(data: Any) -> None:
    len(detaug.DataLoader(Samples(), batch_sampler=data))


@pytest.mark.parametrize(
    "use",
    [
        as_data_set,
        as_batch_sampler,
        as_iterable,
        as_data_set_of_a_loader,
        as_batch_sampler_of_a_loader,
    ],
)
@pytest.mark.parametrize("length", [-7, "12", 2.0, 2**70])
def test_a_length_that_is_none_is_told_with_its_class_and_value(use: Any, length: Any) -> None:
    with pytest.raises(ValueError, match="__len__") as raised:
        use(Long(length))
    line = f"Long.__len__ must give an integer from 0 to {sys.maxsize}, got {length!r}"
    assert str(raised.value) == line


def test_what_a_length_raises_itself_stays_as_it_is() -> None:
    error = ValueError("the index has not been read")
    with pytest.raises(ValueError, match=r"^the index has not been read$") as raised:
        DeterministicAugmenter.from_dataset(Long(error), 2)
    assert raised.value is error


def test_an_epoch_as_text_is_told_what_to_write() -> None:
    augmenter = DeterministicAugmenter.from_dataset(Samples(), 2, num_processes=0, seed=4)
    line = r"^epoch must be a non-negative integer, got '3' of type str: write 3, or int\(\.\.\.\)"
    with pytest.raises(TypeError, match=line):
        augmenter.set_epoch("3")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=line):
        detaug.DataLoader(Samples(), 2).set_epoch("3")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"got 'next' of type str$"):
        augmenter.set_epoch("next")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "name", ["shuffle", "batch_size", "collate_fn", "batch_sampler", "worker_init_fn"]
)
def test_a_loaders_samples_are_not_put_together_again(name: str) -> None:
    with pytest.raises(
        TypeError, match=f"no argument {name}=True: it goes with a data set.*from_dataset"
    ):
        DeterministicAugmenter([1, 2], None, 0, **{name: True})  # type: ignore[arg-type]


def test_a_batch_larger_than_the_data_set_is_all_of_it() -> None:
    with DeterministicAugmenter.from_dataset(Samples(5), 8, num_processes=0) as augmenter:
        assert [sorted(batch.tolist()) for batch in augmenter] == [[0, 1, 2, 3, 4]]


@pytest.mark.parametrize(
    "argument", [{"shuffle": True}, {"sampler": [1]}, {"batch_sampler": [[1]]}]
)
def test_an_iterable_data_set_has_an_order_of_its_own(argument: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=f"so that {next(iter(argument))}.* has no effect"):
        DeterministicAugmenter.from_dataset(Streaming(), 2, **argument)
    with pytest.raises(TypeError, match="needs batch_size, the number of samples"):
        DeterministicAugmenter.from_dataset(Streaming())
