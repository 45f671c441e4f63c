"""The contract of `aug.loader()`: a torch DataLoader that resumes at any batch.

Every `iter()` of it is one epoch.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, DistributedSampler

from detaug import DeterministicAugmenter, Skip, fingerprint
from tests.peers.loops.numbers import augmenter, epochs, loader, reference
from tests.support.numbers import Numbers, samples, seen


def test_every_pass_is_one_epoch() -> None:
    batches = loader(2)
    assert [seen(batches) for _ in range(3)] == reference()[:3]
    assert [seen(batches) for _ in range(2)] == reference()[3:]


def test_batches_are_those_of_the_augmenter_to_the_byte() -> None:
    expected = [fingerprint(batch) for batch in augmenter()]
    assert [fingerprint(batch) for batch in loader(2)] == expected


@pytest.mark.parametrize("num_taken", [1, 3, 6])
def test_a_pass_that_is_left_early_is_over(num_taken: int) -> None:
    batches = loader()
    assert seen(islice(batches, num_taken)) == reference()[0][:num_taken]
    assert seen(batches) == reference()[1]


@pytest.mark.parametrize("num_processes", [0, 2])
def test_two_passes_at_once_are_both_right(num_processes: int) -> None:
    batches = loader(num_processes)
    pairs = list(zip(batches, batches, strict=True))
    assert seen(first for first, _ in pairs) == reference()[0]
    assert seen(second for _, second in pairs) == reference()[1]
    assert seen(batches) == reference()[2]


def loaders_of_two_ranks(**options: Any) -> list[Any]:
    """Return the loaders of rank 0 and of rank 1."""
    return [loader(rank=rank, world_size=2, **options) for rank in range(2)]


def test_len_is_of_this_rank() -> None:
    assert len(loader()) == 6
    for batches in loaders_of_two_ranks():
        assert len(batches) == 3
    for batches in loaders_of_two_ranks(batch_size=5):
        assert len(batches) == 1
    for batches in loaders_of_two_ranks(batch_size=5, tail="pad"):
        assert len(batches) == 2


@pytest.mark.parametrize("tail", ["drop", "pad"])
def test_ranks_share_the_batches_of_an_epoch(tail: str) -> None:
    whole = epochs(2, batch_size=5)
    first, second = loaders_of_two_ranks(batch_size=5, tail=tail)
    for epoch in range(2):
        of_first = seen(first)
        of_second = seen(second)
        assert [of_first[0], of_second[0]] == whole[epoch][:2]
        if tail == "drop":
            assert of_first[1:] == of_second[1:] == []
        else:
            assert of_first[1:] == [whole[epoch][2]]
            assert of_second[1:] == [whole[epoch][0]]


# --- state


def state_after(num_taken: int, epoch: int = 1, leave: bool = False) -> dict[str, Any]:
    """Return the state of a loader within an epoch.

    Args:
        num_taken: number of batches that were taken of this epoch.
        epoch: the epoch; those before it were read to their ends.
        leave: whether the loop was left before the state is read.
    """
    batches = loader()
    for _ in range(epoch):
        seen(batches)
    iterator = iter(batches)
    for _ in range(num_taken):
        next(iterator)
    if leave:
        del iterator
    return json.loads(json.dumps(batches.state_dict()))


def resumed(state: dict[str, Any], num_processes: int = 0) -> Any:
    """Return a new loader that has loaded a state."""
    batches = loader(num_processes)
    batches.load_state_dict(state)
    return batches


@pytest.mark.parametrize("num_taken", [0, 1, 5])
@pytest.mark.parametrize("num_processes", [0, 2])
def test_a_state_of_mid_epoch_gives_its_rest_and_then_the_next(
    num_taken: int, num_processes: int
) -> None:
    batches = resumed(state_after(num_taken), num_processes)
    assert seen(batches) == reference()[1][num_taken:]
    assert seen(batches) == reference()[2]


def test_a_state_of_an_epochs_end_gives_the_next_epoch() -> None:
    whole = loader()
    seen(whole)
    edited = whole.state_dict() | {"next_epoch": 2}
    for state in (state_after(6), state_after(6, leave=True), edited):
        batches = resumed(state)
        assert [seen(batches) for _ in range(2)] == reference()[2:4]


def test_a_state_after_a_break_gives_the_rest_or_the_epoch_that_is_named() -> None:
    assert seen(resumed(state_after(3, leave=True))) == reference()[1][3:]
    batches = resumed(state_after(3, leave=True))
    batches.set_epoch(2)
    assert seen(batches) == reference()[2]


@pytest.mark.parametrize("epoch", [2, 4])
def test_a_state_between_the_naming_of_an_epoch_and_its_first_batch_gives_that_epoch(
    epoch: int,
) -> None:
    batches = loader()
    # Epochs 0 and 1 are left after a batch.
    for _ in range(2):
        iterator = iter(batches)
        next(iterator)
    del iterator
    batches.sampler.set_epoch(epoch)
    assert seen(resumed(batches.state_dict())) == reference()[epoch]


def test_set_epoch_after_a_state_is_the_rest_of_that_epoch_or_another_from_its_start() -> None:
    batches = resumed(state_after(4))
    batches.set_epoch(1)
    assert seen(batches) == reference()[1][4:]
    batches.set_epoch(1)
    assert seen(batches) == reference()[2], "no epoch is given twice"
    batches.load_state_dict(state_after(4))
    batches.set_epoch(3)
    assert seen(batches) == reference()[3]


def test_set_epoch_of_the_state_at_its_end_is_an_empty_rest() -> None:
    """``for epoch in range(state["epoch"], epochs): loader.set_epoch(epoch)`` repeats no batch."""
    batches = resumed(state_after(6))
    batches.set_epoch(1)
    assert seen(batches) == []
    batches.set_epoch(2)
    assert seen(batches) == reference()[2]


def test_a_state_that_was_loaded_is_saved_again_as_it_is() -> None:
    state = state_after(3)
    saved_again = resumed(state).state_dict()
    assert saved_again == state
    assert seen(resumed(saved_again)) == reference()[1][3:]


def test_a_state_that_is_loaded_in_mid_pass_counts_from_the_next() -> None:
    batches = loader()
    iterator = iter(batches)
    next(iterator)
    batches.load_state_dict(state_after(3))
    iterator.close()  # type: ignore[attr-defined]
    assert seen(batches) == reference()[1][3:]
    assert seen(batches) == reference()[2]


def test_a_state_of_two_ranks_goes_on_with_one() -> None:
    first, second = loaders_of_two_ranks()
    # Both are kept, since a pass that nobody holds is over.
    iterators = [iter(first), iter(second)]
    assert [samples(next(iterator)) for iterator in iterators] == reference()[0][:2]
    assert seen(resumed(first.state_dict())) == reference()[0][2:]


@pytest.mark.parametrize(
    "state", [None, {}, "state", augmenter().state_dict(), {"augmenter": {}, "next_epoch": 1}]
)
def test_what_is_no_state_is_refused(state: Any) -> None:
    with pytest.raises(
        ValueError, match=r"this is no state of a loader.* goes into aug\.load_state_dict"
    ):
        loader().load_state_dict(state)


@pytest.mark.parametrize(
    "wrong",
    [
        {"next_epoch": -1},
        {"next_epoch": "1"},
        {"augmenter": {}},
        {"augmenter": augmenter(seed=4).state_dict()},
        {"in_epoch": 3},
    ],
)
def test_garbage_in_a_state_is_refused_and_changes_nothing(wrong: dict[str, Any]) -> None:
    batches = loader()
    with pytest.raises((ValueError, TypeError)):
        batches.load_state_dict(state_after(3) | wrong)
    assert seen(batches) == reference()[0]


# --- validation


@pytest.mark.parametrize("name", ["val", "test"])
def test_a_name_is_a_name(name: str) -> None:
    batches = loader(name=name)
    assert [seen(batches) for _ in range(2)] == epochs(2, name=name)


def test_any_epoch_can_be_that_of_every_pass() -> None:
    batches = augmenter(name="train").loader(epoch=4)
    expected = epochs(5, name="train")[4]
    assert seen(batches) == expected
    assert seen(batches) == expected


# --- what other libraries read


def test_it_is_a_torch_dataloader_with_all_its_attributes() -> None:
    batches = loader(2)
    assert isinstance(batches, DataLoader)
    assert isinstance(batches.sampler, DistributedSampler)
    assert len(batches.dataset) == len(batches.batch_sampler) == 6
    assert batches.num_workers == 0
    assert batches.drop_last is False
    assert batches.pin_memory is False
    assert batches.batch_size is None
    assert batches.generator is None
    assert batches.persistent_workers is False
    assert batches.timeout == 0
    assert batches.worker_init_fn is None
    assert batches.prefetch_factor is None
    assert callable(batches.collate_fn)
    batches.sampler.set_epoch(2)
    assert seen(batches) == reference()[2]


def test_its_batches_are_had_by_their_keys_in_any_order() -> None:
    batches = loader(2).dataset
    for epoch, step in [(0, 0), (0, 1), (3, 2), (1, 5), (0, 2), (0, 3)]:
        assert samples(batches[epoch, step]) == reference()[epoch][step]
    assert samples(batches[4]) == reference()[0][4]
    with pytest.raises(IndexError, match=r"steps 0 \.\.\. 5, not 6"):
        batches[6]


def test_a_ranks_data_set_has_the_batches_of_all() -> None:
    batches = loader(rank=1, world_size=2).dataset
    assert [samples(batches[0, step]) for step in range(6)] == reference()[0]


def remade(batches: Any, kind: Any = DataLoader, **options: Any) -> Any:
    """Return a loader of another class, made of a loader's parts as libraries make one."""
    return kind(
        batches.dataset,
        batch_sampler=batches.batch_sampler,
        collate_fn=batches.collate_fn,
        **options,
    )


def test_a_loader_with_workers_made_of_it_is_told_what_to_do() -> None:
    batches = loader(1)
    next(iter(batches))
    with_workers = remade(batches, num_workers=1)
    with pytest.raises(RuntimeError, match="make that DataLoader with num_workers=0"):
        seen(with_workers)


def test_a_loader_that_is_sent_to_another_process_is_told_what_to_do() -> None:
    with pytest.raises(TypeError, match=r"ddp_spawn that is in train_dataloader\(\)"):
        pickle.dumps(loader())


@pytest.mark.parametrize("num_taken", [1, 3, 5, 6])
def test_a_stateful_dataloader_of_its_parts_resumes(num_taken: int) -> None:
    torchdata = pytest.importorskip("torchdata.stateful_dataloader")
    first = remade(loader(), torchdata.StatefulDataLoader)
    assert seen(first) == reference()[0]
    iterator = iter(first)
    assert seen(islice(iterator, num_taken)) == reference()[1][:num_taken]
    second = remade(loader(), torchdata.StatefulDataLoader)
    second.load_state_dict(first.state_dict())
    if num_taken < 6:
        assert seen(second) == reference()[1][num_taken:]
        assert seen(second) == reference()[2]


def test_the_state_of_one_of_two_loaders_says_which() -> None:
    batches = loader()
    other = remade(batches)
    next(iter(other))
    with pytest.raises(RuntimeError, match="another DataLoader reads these batches"):
        batches.state_dict()


# --- other pipelines


class Fails(Numbers):
    """A data set in which item 5 cannot be read."""

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 5:
            raise OSError("the file is damaged")
        return super().__getitem__(index)


@pytest.mark.parametrize("num_processes", [0, 2])
def test_batches_that_fail_are_left_out_of_each_pass(num_processes: int) -> None:
    batches = DeterministicAugmenter.from_dataset(
        Fails(), 2, num_processes=num_processes, seed=3, on_error=Skip(most=10)
    ).loader()
    for epoch in range(2):
        expected = [batch for batch in reference()[epoch] if 5 not in batch]
        assert seen(batches) == expected


def test_a_batch_that_fails_raises_and_the_next_pass_begins() -> None:
    batches = DeterministicAugmenter.from_dataset(Fails(), 2, num_processes=0, seed=3).loader()
    with pytest.raises(OSError, match="damaged"):
        seen(batches)
    assert samples(next(iter(batches))) == reference()[1][0]


class Counting:
    """A loader of five batches that keeps its position and has no `__len__`."""

    def __iter__(self) -> Iterator[Any]:
        for number in range(5):
            yield {"data": np.array([number])}


def numbers_of(batches: Any) -> list[int]:
    """Return the number in each batch of `Counting`."""
    return [batch["data"].item() for batch in batches]


def test_a_loader_of_unknown_length_is_refused() -> None:
    with pytest.raises(TypeError, match=r"Counting.* batches_per_epoch="):
        DeterministicAugmenter(Counting(), None, 0, seed=1).loader()


@pytest.mark.parametrize("num_processes", [0, 1])
def test_a_finite_stream_passes_and_resumes(num_processes: int) -> None:
    def counting_loader() -> Any:
        return DeterministicAugmenter(
            Counting(), None, num_processes, seed=1, num_streams=1, batches_per_epoch=5
        ).loader()

    batches = counting_loader()
    assert len(batches) == 5
    for _ in range(2):
        assert numbers_of(batches) == [0, 1, 2, 3, 4]
    iterator = iter(batches)
    assert numbers_of(islice(iterator, 2)) == [0, 1]
    continued = counting_loader()
    continued.load_state_dict(batches.state_dict())
    assert numbers_of(continued) == [2, 3, 4]
    assert numbers_of(continued) == [0, 1, 2, 3, 4]


def test_a_look_in_mid_epoch_is_not_the_loops_place() -> None:
    batches = loader()
    iterator = iter(batches)
    next(iterator)
    # A look at one batch of another pass, which is that of epoch 1.
    next(iter(batches))
    next(iterator)
    continued = resumed(batches.state_dict())
    assert seen(continued) == reference()[0][2:]
    assert seen(continued) == seen(batches)


def test_each_loader_of_an_augmenter_has_a_place_of_its_own() -> None:
    shared = augmenter()
    train = shared.loader()
    other = shared.loader(epoch=2)
    iterator = iter(train)
    next(iterator)
    assert seen(other) == reference()[2]
    assert seen(resumed(train.state_dict())) == reference()[0][1:]
    assert seen(iterator) == reference()[0][1:]


def test_batches_that_may_be_left_out_have_no_numbers() -> None:
    batches = loader(on_error=Skip())
    with pytest.raises(RuntimeError, match="on_error"):
        batches.dataset[0, 0]
