"""Loaders that a library builds from a loader's attributes give the same bytes or an error."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
import torch.utils.data
from torch.utils.data import (
    BatchSampler,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Subset,
    TensorDataset,
    WeightedRandomSampler,
    default_collate,
)

from detaug import DataLoader, Skip, fingerprint
from detaug.augmenter.parts import Part, gathered
from tests.support.numbers import Count, Numbers, epochs, loader, samples, seen


def fingerprints_of(batches: Any) -> list[str]:
    return [fingerprint(batch) for batch in batches]


def rebuilt(batches: Any, **options: Any) -> torch.utils.data.DataLoader[Any]:
    """Return the loader that Accelerate builds for a single rank."""
    return torch.utils.data.DataLoader(
        batches.dataset,
        batch_sampler=batches.batch_sampler,
        collate_fn=batches.collate_fn,
        num_workers=batches.num_workers,
        timeout=batches.timeout,
        prefetch_factor=batches.prefetch_factor,
        persistent_workers=batches.persistent_workers,
        multiprocessing_context=batches.multiprocessing_context,
        **options,
    )


ORDERS: dict[str, dict[str, Any]] = {
    "shuffled": {},
    "in order": {"shuffle": False},
    "with a sampler": {"shuffle": None, "sampler": WeightedRandomSampler([1.0] * 12, 9)},
    "with a batch sampler": {
        "shuffle": None,
        "batch_size": 1,
        "batch_sampler": BatchSampler(RandomSampler(range(12)), 5, False),
    },
    "the last batch dropped": {"batch_size": 5, "drop_last": True},
    "the last batch smaller": {"batch_size": 5},
    "an epoch that is fixed": {"epoch": 3},
    "named": {"name": "train"},
}


@pytest.mark.parametrize("options", ORDERS.values(), ids=ORDERS)
def test_a_loader_of_its_attributes_gives_the_same_bytes(options: dict[str, Any]) -> None:
    unprepared = loader(**options)
    prepared = rebuilt(loader(**options))
    for _ in range(2):
        expected = fingerprints_of(unprepared)
        assert len(prepared) == len(expected)
        assert fingerprints_of(prepared) == expected


@pytest.mark.parametrize("options", [{}, {"shuffle": False}])
def test_a_loader_of_its_sampler_gives_the_same_bytes(options: dict[str, Any]) -> None:
    batches = loader(**options)
    other = torch.utils.data.DataLoader(
        batches.dataset, 2, sampler=batches.sampler, collate_fn=batches.collate_fn
    )
    assert seen(other) == epochs(1, **options)[0]


def test_a_loader_without_batch_size_is_rebuilt_by_its_sampler() -> None:
    batches = loader(batch_size=None)
    other = torch.utils.data.DataLoader(
        batches.dataset, None, sampler=batches.sampler, collate_fn=batches.collate_fn
    )
    assert fingerprints_of(other) == fingerprints_of(loader(batch_size=None))


def test_its_keys_are_the_indices_of_samples() -> None:
    batches = loader()
    (expected,) = epochs(1)
    assert [tuple(keys) for keys in batches.batch_sampler] == expected
    assert list(batches.sampler) == list(sum(expected, ()))
    assert seen(batches) == expected, "looking at the order gives no epoch"


def test_its_data_set_is_the_users_in_all_that_a_tutorial_does_with_it() -> None:
    dataset = TensorDataset(torch.arange(6).float())
    dataset.classes = ["a", "b"]
    shown = DataLoader(dataset, 2).dataset
    assert len(shown) == 6
    assert shown[3] == (torch.tensor(3.0),)
    assert isinstance(shown, TensorDataset)
    assert shown == dataset
    assert shown.classes == ["a", "b"]
    shown.classes = ["c"]
    assert dataset.classes == ["c"]
    subset = Subset(shown, [4, 1])
    assert [number.item() for (number,) in subset] == [4, 1]
    assert len(shown + shown) == 12
    assert DataLoader(shown, 2).dataset == dataset
    assert isinstance(DataLoader(Count(), 2).dataset, IterableDataset)
    assert not hasattr(DataLoader(Count(), 2).dataset, "__len__")


def shared_out(batches: Any, rank: int, size: int) -> torch.utils.data.DataLoader[Any]:
    """Return a rank's loader as Accelerate's BatchSamplerShard splits it, without the tail."""

    class Share(BatchSampler):
        def __init__(self) -> None:
            pass

        def __iter__(self) -> Any:
            return islice(iter(batches.batch_sampler), rank, None, size)

        def __len__(self) -> int:
            return len(batches.batch_sampler) // size

    return torch.utils.data.DataLoader(
        batches.dataset, batch_sampler=Share(), collate_fn=batches.collate_fn
    )


@pytest.mark.parametrize("rank", [0, 1])
def test_a_share_that_somebody_else_takes_has_the_same_bytes(rank: int) -> None:
    part = shared_out(loader(), rank, 2)
    for epoch in epochs(2):
        assert seen(part) == epoch[rank::2]


def by_keys(batches: Any, keys: Any) -> Any:
    """Return the batch of these keys as a foreign loader reads it."""
    return batches.collate_fn(batches.dataset.__getitems__(keys))


def test_batches_by_keys_in_any_order_and_again() -> None:
    batches = loader()
    keys = list(batches.batch_sampler)
    (expected,) = epochs(1)
    for step in [0, 1, 4, 2, 2, 5, 0]:
        assert samples(by_keys(batches, keys[step])) == expected[step]


def test_samples_of_several_batches_are_put_together() -> None:
    batches = loader(batch_size=5)
    first, second, last = loader(batch_size=5)
    first_keys, second_keys, last_keys = batches.batch_sampler
    filled = by_keys(batches, last_keys + first_keys[:3])
    assert torch.equal(filled, torch.cat([last, first[:3]]))
    half = by_keys(batches, second_keys[2:4])
    assert torch.equal(half, second[2:4])


ZERO_TO_TWO = torch.arange(3)
THREE_TO_FIVE = torch.arange(3, 6)
#: Name -> (batch of three samples, whether torch's default collated it, its samples 2 and 0).
PARTS: dict[str, tuple[Any, bool, Any]] = {
    "a tensor": (
        ZERO_TO_TWO,
        True,
        [2, 0],
    ),
    "an array": (
        ZERO_TO_TWO.numpy(),
        True,
        [2, 0],
    ),
    "a dict": (
        {"x": ZERO_TO_TWO, "name": ["a", "b", "c"]},
        True,
        {"x": [2, 0], "name": ["c", "a"]},
    ),
    "a pair": (
        [ZERO_TO_TWO, THREE_TO_FIVE],
        True,
        [[2, 0], [5, 3]],
    ),
    "as many fields as samples": (
        [ZERO_TO_TWO] * 3,
        True,
        [[2, 0]] * 3,
    ),
    "a list of samples": (
        [{"n": 0}, {"n": 1}, {"n": 2}],
        False,
        [{"n": 2}, {"n": 0}],
    ),
    "a pair of one's own": (
        (ZERO_TO_TWO, ZERO_TO_TWO),
        False,
        ([2, 0], [2, 0]),
    ),
}


def plain(value: Any) -> Any:
    """Return a batch with lists in place of arrays and tensors."""
    if isinstance(value, (torch.Tensor, np.ndarray)):
        return value.tolist()
    if isinstance(value, dict):
        return {name: plain(entry) for name, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(plain(entry) for entry in value)
    return value


@pytest.mark.parametrize(("batch", "is_default", "expected"), PARTS.values(), ids=PARTS)
def test_a_part_of_a_batch(batch: Any, is_default: bool, expected: Any) -> None:
    parts = [Part(batch, 3, [2]), Part(batch, 3, [0])]
    assert plain(gathered(parts, is_default)) == expected


@pytest.mark.parametrize(
    ("batch", "is_default"),
    [
        (torch.arange(4), True),
        ({"mean": torch.tensor(1.0)}, True),
        (5, True),
        ([torch.zeros(3)] * 3, False),
        ([1, 2], False),
    ],
)
def test_a_part_of_what_does_not_say_where_samples_are_is_refused(
    batch: Any, is_default: bool
) -> None:
    with pytest.raises(ValueError, match=r"does not say what belongs to which sample"):
        gathered([Part(batch, 3, [1])], is_default)


def with_a_sampler_of_its_own(batches: Any) -> Any:
    """Return the loader that Ray Train builds."""
    sampler = DistributedSampler(batches.dataset, 2, 0)
    return torch.utils.data.DataLoader(
        batches.dataset, batches.batch_size, sampler=sampler, collate_fn=batches.collate_fn
    )


def without_a_sampler(batches: Any) -> Any:
    """Return the loader that Accelerate builds if there is no batch sampler."""
    return torch.utils.data.DataLoader(
        batches.dataset, batches.batch_size, collate_fn=batches.collate_fn
    )


FOREIGN: dict[str, tuple[Any, Any]] = {
    "a sampler of its own": (loader(), with_a_sampler_of_its_own),
    "no sampler": (loader(), without_a_sampler),
    "no batch size": (loader(batch_size=None), without_a_sampler),
    "an iterable": (DataLoader(Count(), 2, seed=1), without_a_sampler),
}


@pytest.mark.parametrize(("batches", "rebuild"), FOREIGN.values(), ids=FOREIGN)
def test_an_order_that_is_not_detaugs_is_an_error(batches: Any, rebuild: Any) -> None:
    other = rebuild(batches)
    with pytest.raises(RuntimeError, match=r"of this detaug\.DataLoader's attributes.*shard=True"):
        list(other)


def test_its_collation_is_the_users_where_he_calls_it() -> None:
    assert loader(collate_fn=len).collate_fn([1, 2, 3]) == 3
    assert torch.equal(loader().collate_fn([1, 2]), default_collate([1, 2]))


def test_a_loader_that_shares_out_is_not_read_by_one_that_does_not() -> None:
    sampler = DistributedSampler(Numbers(), 2, 1)
    batches = loader(shuffle=None, sampler=sampler)
    with pytest.raises(
        RuntimeError, match=r"rank 1 of 2 .* call prepare before skip_first_batches"
    ):
        list(rebuilt(batches))
    part = shared_out(loader(shuffle=None, sampler=sampler), 1, 2)
    (expected,) = epochs(1)
    assert seen(part) == expected[1::2]


def test_the_state_of_one_of_two_loaders_says_which() -> None:
    batches = loader()
    next(iter(rebuilt(batches)))
    with pytest.raises(RuntimeError, match="another DataLoader reads these batches"):
        batches.state_dict()


def test_its_data_set_says_which_epoch_comes_next() -> None:
    batches = loader()
    passing = iter(rebuilt(batches))
    for _ in range(5):
        assert batches.dataset.state_dict() == {"next_epoch": 0}
        next(passing)
    next(passing)
    assert batches.dataset.state_dict() == {"next_epoch": 1}


def test_batches_that_may_be_left_out_have_no_numbers() -> None:
    with pytest.raises(RuntimeError, match="on_error=Skip"):
        next(iter(rebuilt(loader(on_error=Skip()))))


def test_a_loader_with_a_loaded_state_is_not_begun_again_by_another() -> None:
    batches = loader()
    batches.load_state_dict(loader().state_dict() | {"in_epoch": True})
    with pytest.raises(RuntimeError, match="load the state into only one of the two"):
        next(iter(rebuilt(batches)))


# --- loaders of its own class, as Lightning builds them


def remade(batches: Any, sampler: Any = None, batch_sampler: Any = None, **options: Any) -> Any:
    """Return the loader that Lightning builds with another sampler or batch sampler."""
    batch_size = batches.batch_size
    drop_last = batches.drop_last
    if batch_sampler is not None:
        batch_size = 1
        drop_last = False
    return type(batches)(
        dataset=batches.dataset,
        batch_size=batch_size,
        drop_last=drop_last,
        collate_fn=batches.collate_fn,
        shuffle=False,
        sampler=sampler,
        batch_sampler=batch_sampler,
        **options,
    )


@pytest.mark.parametrize("rank", [0, 1])
def test_a_distributed_sampler_that_is_put_in_shares_its_batches(rank: int) -> None:
    batches = loader(name="train")
    sampler = DistributedSampler(batches.dataset, 2, rank)
    batch_sampler = type(batches.batch_sampler)(sampler, 2, False)
    by_sampler = remade(batches, sampler)
    by_batch_sampler = remade(batches, batch_sampler=batch_sampler)
    for other in (by_sampler, by_batch_sampler):
        assert other.sampler is sampler
        for epoch in epochs(2, name="train"):
            assert seen(other) == epoch[rank::2]


def test_a_distributed_sampler_that_is_put_in_keeps_a_batch_sampler() -> None:
    options = ORDERS["with a batch sampler"]
    batches = loader(**options)
    sampler = DistributedSampler(batches.dataset, 2, 1)
    batch_sampler = type(batches.batch_sampler)(sampler, None, False)
    other = remade(batches, batch_sampler=batch_sampler)
    (whole,) = epochs(1, **options)
    assert seen(other) == [whole[1], whole[0]], "three batches: the first once more"


def test_a_loader_that_is_made_again_has_all_of_its_settings() -> None:
    batches = loader(num_workers=2, timeout=5, transform=len, name="x", epoch=4, keep=("cache",))
    other = remade(batches, batches.sampler)
    assert other._lazy.settings == batches._lazy.settings
    assert remade(batches, batches.sampler, num_workers=3)._lazy.settings.num_workers == 3


def test_a_loader_that_is_made_again_continues_from_a_loaded_state() -> None:
    batches = loader()
    passing = iter(batches)
    next(passing)
    resumed = loader()
    resumed.load_state_dict(batches.state_dict())
    other = remade(resumed, resumed.sampler)
    assert seen(other) == seen(passing)


def test_a_new_loader_of_its_data_set_has_settings_of_its_own() -> None:
    batches = loader(name="train", epoch=3)
    other = DataLoader(batches.dataset, 3, seed=3, check=False)
    assert samples(next(iter(other))) == (0, 1, 2)
    assert other._lazy.settings.epoch is None


class Skipping(BatchSampler):
    """A library's own batch sampler around a loader's, as Ignite's DeterministicEngine has it."""

    def __init__(self, batch_sampler: Any, skipped: int) -> None:
        self.batch_sampler = batch_sampler
        self.skipped = skipped

    def __iter__(self) -> Any:
        return islice(iter(self.batch_sampler), self.skipped, None)

    def __len__(self) -> int:
        return len(self.batch_sampler) - self.skipped


def test_a_loader_with_another_batch_sampler_around_its_own_reads_what_that_one_says() -> None:
    batches = loader()
    other = remade(batches, batch_sampler=Skipping(batches.batch_sampler, 2))
    assert len(other) == 4
    for epoch in epochs(2):
        assert seen(other) == epoch[2:]
