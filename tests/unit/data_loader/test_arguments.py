"""The DataLoader's arguments: torch's, one by one, and detaug's own."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from itertools import count
from typing import Any

import numpy as np
import pytest
import torch
import torch.utils.data
from torch.utils.data import (
    BatchSampler,
    RandomSampler,
    SequentialSampler,
    WeightedRandomSampler,
    get_worker_info,
)

from detaug import DataLoader, DeterministicAugmenter, InThisProcess, fingerprint
from tests.support.numbers import Count, Numbers, SizedCount, loader, seen


def parameters_of(loader_class: type) -> list[inspect.Parameter]:
    return list(inspect.signature(loader_class).parameters.values())


def fingerprints_of(batches: Any) -> list[str]:
    return [fingerprint(batch) for batch in batches]


def test_the_signature_is_torchs_and_then_detaugs() -> None:
    of_torch = parameters_of(torch.utils.data.DataLoader)
    of_detaug = parameters_of(DataLoader)
    for parameter, original in zip(of_detaug, of_torch, strict=False):
        assert parameter.name == original.name
        assert parameter.default == original.default
        assert parameter.kind == original.kind
    detaug_only = of_detaug[len(of_torch) :]
    assert [parameter.name for parameter in detaug_only] == [
        "seed",
        "name",
        "epoch",
        "shard",
        "num_streams",
        "transform",
        "keep",
        "check",
        "on_error",
        "ledger",
        "executor",
    ]


def test_it_is_a_torch_dataloader() -> None:
    assert isinstance(loader(), torch.utils.data.DataLoader)


def test_batches_are_those_of_an_augmenter_of_the_data_set() -> None:
    augmenter = DeterministicAugmenter.from_dataset(
        Numbers(), 2, num_processes=0, seed=3, name="train", check=False
    )
    assert fingerprints_of(loader(name="train")) == fingerprints_of(augmenter)


def plain(**options: Any) -> torch.utils.data.DataLoader[Any]:
    return torch.utils.data.DataLoader(**options)


def values(batches: Any) -> list[Any]:
    """Return batches as nested lists, with the dtypes of arrays and tensors."""
    return [_value(batch) for batch in batches]


def _value(batch: Any) -> Any:
    """Return one batch, or a part of one, in the same way."""
    if isinstance(batch, (torch.Tensor, np.ndarray)):
        return (str(batch.dtype), batch.tolist())
    if isinstance(batch, dict):
        return {name: _value(value) for name, value in batch.items()}
    if isinstance(batch, (list, tuple)):
        return [_value(value) for value in batch]
    return batch


def pair(number: int) -> tuple[np.ndarray, int]:
    return np.array([number, 1], np.float32), number % 3


def named(number: int) -> dict[str, Any]:
    return {"x": torch.tensor([number]), "name": f"case {number}"}


PAIRS = [pair(number) for number in range(7)]
NAMED = [named(number) for number in range(5)]


class BatchedReading(list[Any]):
    """A data set that takes a list of indices: batch_size=None, sampler=BatchSampler(...)."""

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, list):
            return [list.__getitem__(self, part) for part in index]
        return list.__getitem__(self, index)


#: Arguments for data sets and orders without random numbers.
AS_TORCH: dict[str, dict[str, Any]] = {
    "the defaults": {"dataset": PAIRS},
    "a batch size": {"dataset": PAIRS, "batch_size": 3},
    "drop_last": {"dataset": PAIRS, "batch_size": 3, "drop_last": True},
    "dicts with texts": {"dataset": NAMED, "batch_size": 2},
    "a collate_fn": {"dataset": PAIRS, "batch_size": 3, "collate_fn": len},
    "no batch size": {"dataset": PAIRS, "batch_size": None},
    "no batch size and a collate_fn": {"dataset": NAMED, "batch_size": None, "collate_fn": str},
    "a list as sampler": {"dataset": PAIRS, "batch_size": 2, "sampler": [4, 4, 1]},
    "a sequential sampler": {
        "dataset": PAIRS,
        "batch_size": 2,
        "sampler": SequentialSampler(PAIRS),
    },
    "a batch sampler": {"dataset": PAIRS, "batch_sampler": [[0, 3], [6], [1, 2, 5]]},
    "batches read at once": {
        "dataset": BatchedReading(PAIRS),
        "batch_size": None,
        "sampler": BatchSampler(SequentialSampler(PAIRS), 3, False),
        "collate_fn": list,
    },
    "an iterable": {"dataset": Count(), "batch_size": 3},
    "an iterable with drop_last": {"dataset": Count(), "batch_size": 3, "drop_last": True},
    "an iterable without batch size": {"dataset": Count(), "batch_size": None},
    "nothing": {"dataset": [], "batch_size": 2},
    "less than a batch": {"dataset": PAIRS, "batch_size": 8, "drop_last": True},
}


@pytest.mark.parametrize("options", AS_TORCH.values(), ids=AS_TORCH)
def test_batches_in_order_are_torchs_own(options: dict[str, Any]) -> None:
    batches = DataLoader(**options, seed=1, check=False)
    expected = plain(**options)
    for _ in range(2):
        assert values(batches) == values(expected)


@pytest.mark.parametrize("options", AS_TORCH.values(), ids=AS_TORCH)
def test_lengths_and_attributes_are_torchs(options: dict[str, Any]) -> None:
    batches = DataLoader(**options)
    expected = plain(**options)
    for name in ("batch_size", "drop_last", "pin_memory", "generator", "worker_init_fn"):
        assert getattr(batches, name) == getattr(expected, name)
    if isinstance(batches.dataset, Count):
        with pytest.raises(TypeError, match="len"):
            len(batches)
        return
    assert len(batches) == len(expected)
    assert len(iter(batches)) == len(iter(expected))  # type: ignore[arg-type]
    assert len(batches.dataset) == len(expected.dataset)


REFUSED_BY_TORCH: dict[str, dict[str, Any]] = {
    "workers": {"num_workers": -1},
    "timeout": {"timeout": -1},
    "prefetch_factor": {"prefetch_factor": 2},
    "persistent_workers": {"persistent_workers": True},
    "sampler and shuffle": {"sampler": [1], "shuffle": True},
    "batch_sampler and batch_size": {"batch_sampler": [[1]], "batch_size": 4},
    "no batch size and drop_last": {"batch_size": None, "drop_last": True},
    "a start method": {"multiprocessing_context": "no such", "num_workers": 1},
    "a shuffled iterable": {"dataset": Count(), "shuffle": True},
    "an iterable and a sampler": {"dataset": Count(), "sampler": [1]},
}


@pytest.mark.parametrize("options", REFUSED_BY_TORCH.values(), ids=REFUSED_BY_TORCH)
def test_what_torch_refuses_is_refused_in_its_words(options: dict[str, Any]) -> None:
    options = {"dataset": PAIRS, **options}
    with pytest.raises(Exception) as expected:  # noqa: PT011
        plain(**options)
    with pytest.raises(expected.type) as actual:
        DataLoader(**options)
    assert str(actual.value) == str(expected.value)


class Endless:
    """A sampler without a length."""

    def __iter__(self) -> Iterator[int]:
        return count()


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "another order": ({"in_order": False}, "in_order=False .* one fixed order"),
    "two seeds": ({"generator": torch.Generator(), "seed": 1}, "generator and seed"),
    "a shared iterable": ({"dataset": Count(), "shard": True}, r"IterableDataset .* leave it out"),
    "a limit that nobody keeps": ({"timeout": 3}, "timeout=3 has no effect with num_workers=0"),
    "two executors": (
        {"num_workers": 1, "timeout": 3, "executor": InThisProcess()},
        "executor=LocalProcesses",
    ),
    "a seed": ({"seed": -1}, "seed must not be negative"),
    "a name": ({"name": 3}, "name must be a string"),
    "an epoch": ({"epoch": -1}, "epoch must not be negative"),
    "a flag": ({"shard": 1}, "shard must be True or False"),
    "a sampler": ({"sampler": Endless()}, "sampler must have a length, .* Endless has none"),
    "a batch sampler": ({"batch_sampler": Endless()}, "batch_sampler must have a length"),
    "a transform": ({"transform": 3}, "transform must be callable"),
    "streams": ({"num_streams": 0}, "num_streams must be at least 1"),
}


@pytest.mark.parametrize(("options", "message"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_had_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        next(iter(DataLoader(**{"dataset": Numbers(), **options})))


def test_a_generators_initial_seed_is_the_seed() -> None:
    generator = torch.Generator().manual_seed(3)
    torch.rand(5, generator=generator)
    assert seen(loader(seed=None, generator=generator)) == seen(loader(seed=3))


def test_manual_seed_repeats_a_training(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "detaug")
    torch.manual_seed(0)
    first = seen(loader(seed=None))
    second = seen(loader(seed=None))
    torch.manual_seed(0)
    assert seen(loader(seed=None)) == first
    assert seen(loader(seed=None)) == second
    assert first != second
    assert "drawn from torch's default generator" in caplog.text


def test_the_environments_seed_is_taken_before_one_is_drawn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DETAUG_SEED", "3")
    state_before = torch.random.get_rng_state()
    assert seen(loader(seed=None)) == seen(loader(seed=3))
    assert torch.equal(torch.random.get_rng_state(), state_before)


def test_a_drawn_seed_is_kept_in_the_state() -> None:
    whole = loader(seed=None)
    passing = iter(whole)
    next(passing)
    again = loader(seed=None)
    again.load_state_dict(whole.state_dict())
    assert seen(again) == seen(passing)
    assert again.augmenter.seed == whole.augmenter.seed


def test_without_a_name_shuffled_and_ordered_loaders_draw_other_numbers() -> None:
    shuffled = next(iter(loader(1, batch_size=1, shuffle=True)))
    in_order = next(iter(loader(1, batch_size=1, shuffle=False)))
    assert not torch.equal(shuffled, in_order)


def test_two_loaders_that_draw_the_same_numbers_are_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    one = loader(12, seed=71)
    other = loader(10, seed=71)
    next(iter(one))
    next(iter(other))
    assert "draw the same random numbers" in caplog.text


@pytest.mark.parametrize(
    "sampler",
    [
        WeightedRandomSampler([1.0] * 11 + [50.0], 8),
        RandomSampler(Numbers(), True, 8),
    ],
)
def test_a_custom_sampler_is_seeded_and_shown(sampler: Any) -> None:
    batches = loader(shuffle=None, sampler=sampler)
    assert batches.sampler is sampler
    first = seen(batches)
    second = seen(batches)
    assert len(first) == len(second) == 4
    assert first != second
    again = loader(shuffle=None, sampler=sampler)
    assert seen(again) == first
    assert seen(again) == second


class Configured(Count):
    """An iterable data set whose start `configure` sets."""

    def __iter__(self) -> Any:
        return iter(range(self.start, self.length))


def configure(worker: int) -> None:
    """Configure a worker's copy of the data set; a `worker_init_fn`."""
    info = get_worker_info()
    assert info is not None
    assert worker == info.id
    info.dataset.start = 4


def test_worker_init_fn_finds_its_copy_of_an_iterable() -> None:
    options: dict[str, Any] = {"worker_init_fn": configure, "seed": 1, "check": False}
    batches = DataLoader(Configured(), 2, **options)
    assert [batch.tolist() for batch in batches] == [[4, 5], [6]]
    items = DataLoader(Configured(), None, **options)
    assert list(items) == [4, 5, 6]


@pytest.mark.parametrize(
    ("streams", "order"), [(None, [0, 1, 2, 3, 4, 5, 6]), (2, [0, 2, 1, 3, 4, 6, 5])]
)
def test_an_iterable_sees_as_many_workers_as_streams(streams: int | None, order: list[int]) -> None:
    batches = DataLoader(Count(), 2, num_streams=streams, seed=1, check=False)
    assert torch.cat(list(batches)).tolist() == order


def test_an_iterable_with_a_length_knows_its_own() -> None:
    assert len(DataLoader(SizedCount(), 3)) == 3
    assert len(DataLoader(SizedCount(), 3, drop_last=True)) == 2


def test_a_transform_is_given_the_batch() -> None:
    batch = next(iter(loader()))
    changed = next(iter(loader(transform=torch.neg)))
    assert torch.equal(changed, -batch)


def test_arguments_may_be_set_until_the_first_batch() -> None:
    batches = loader()
    batches.collate_fn = len
    batches.worker_init_fn = configure
    batches.worker_init_fn = None
    assert list(batches) == [2] * 6
    with pytest.raises(ValueError, match=r"collate_fn has no effect any more.*make another loader"):
        batches.collate_fn = list
    with pytest.raises(ValueError, match="batch_size attribute should not be set"):
        batches.batch_size = 3


def test_the_data_set_is_taken_when_the_first_pass_begins() -> None:
    dataset = Numbers(4)
    batches = DataLoader(dataset, 2, seed=3, check=False)
    dataset.length = 8
    assert len(batches) == len(seen(batches)) == 4
