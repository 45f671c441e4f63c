"""The contract of `aug.loader()`: a torch DataLoader, of which every `iter()` is one epoch, and
which resumes at any batch.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, DistributedSampler

from detaug import DeterministicAugmenter, Skip, fingerprint
from tests.peers.loops.numbers import Numbers, augmenter, epochs, loader, reference, samples, seen


def test_every_pass_is_one_epoch() -> None:
    batches = loader(2)
    assert [seen(batches) for _ in range(3)] == reference()[:3]
    assert [seen(batches) for _ in range(2)] == reference()[3:]


def test_batches_are_those_of_the_augmenter_to_the_byte() -> None:
    assert [fingerprint(batch) for batch in loader(2)] == [
        fingerprint(batch) for batch in augmenter()
    ]


@pytest.mark.parametrize("taken", [1, 3, 6])
def test_a_pass_that_is_left_early_is_over(taken: int) -> None:
    batches = loader()
    assert (
        seen(batch for batch, _ in zip(batches, range(taken), strict=False))
        == reference()[0][:taken]
    )
    assert seen(batches) == reference()[1]


@pytest.mark.parametrize("workers", [0, 2])
def test_two_passes_at_once_are_both_right(workers: int) -> None:
    batches = loader(workers)
    together = list(zip(batches, batches, strict=True))
    assert seen(first for first, _ in together) == reference()[0]
    assert seen(second for _, second in together) == reference()[1]
    assert seen(batches) == reference()[2]


def test_len_is_of_this_rank() -> None:
    assert len(loader()) == 6
    assert [len(loader(rank=rank, world_size=2)) for rank in range(2)] == [3, 3]
    assert [len(loader(batch_size=5, rank=rank, world_size=2)) for rank in range(2)] == [1, 1]
    assert [
        len(loader(batch_size=5, rank=rank, world_size=2, tail="pad")) for rank in range(2)
    ] == [2, 2]


@pytest.mark.parametrize("tail", ["drop", "pad"])
def test_ranks_share_the_batches_of_an_epoch(tail: str) -> None:
    whole = epochs(2, batch_size=5)
    parts = [loader(batch_size=5, rank=rank, world_size=2, tail=tail) for rank in range(2)]
    found = [[seen(part) for _ in range(2)] for part in parts]
    for epoch in range(2):
        assert [found[0][epoch][0], found[1][epoch][0]] == whole[epoch][:2]
        assert [found[0][epoch][1:], found[1][epoch][1:]] == (
            [[], []] if tail == "drop" else [[whole[epoch][2]], [whole[epoch][0]]]
        )


# --- state
# ------------------------------------------------------------------------------------------------------------


def after(taken: int, of_epoch: int = 1, leave: bool = False) -> dict[str, Any]:
    """The state of a loader of which so many batches have been taken."""
    batches = loader()
    for _ in range(of_epoch):
        seen(batches)
    passing = iter(batches)
    for _ in range(taken):
        next(passing)
    if leave:
        del passing
    return json.loads(json.dumps(batches.state_dict()))


def resumed(state: dict[str, Any], workers: int = 0) -> Any:
    batches = loader(workers)
    batches.load_state_dict(state)
    return batches


@pytest.mark.parametrize("taken", [0, 1, 5])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_state_of_mid_epoch_gives_its_rest_and_then_the_next(taken: int, workers: int) -> None:
    batches = resumed(after(taken), workers)
    assert [seen(batches) for _ in range(2)] == [reference()[1][taken:], reference()[2]]


def test_a_state_of_an_epochs_end_gives_the_next_epoch() -> None:
    whole = loader()
    seen(whole)
    for state in (after(6), after(6, leave=True), whole.state_dict() | {"next_epoch": 2}):
        batches = resumed(state)
        assert [seen(batches) for _ in range(2)] == reference()[2:4]


def test_a_state_after_a_break_gives_the_rest_or_the_epoch_that_is_named() -> None:
    assert seen(resumed(after(3, leave=True))) == reference()[1][3:]
    batches = resumed(after(3, leave=True))
    batches.set_epoch(2)
    assert seen(batches) == reference()[2]


@pytest.mark.parametrize("named", [2, 4])
def test_a_state_between_the_naming_of_an_epoch_and_its_first_batch_gives_that_epoch(
    named: int,
) -> None:
    batches = loader()
    for _ in range(2):
        next(passing := iter(batches))
    del passing  # epochs 0 and 1 were left after a batch
    batches.sampler.set_epoch(named)
    assert seen(resumed(batches.state_dict())) == reference()[named]


def test_set_epoch_after_a_state_is_the_rest_of_that_epoch_or_another_from_its_start() -> None:
    batches = resumed(after(4))
    batches.set_epoch(1)
    assert seen(batches) == reference()[1][4:]
    batches.set_epoch(1)
    assert seen(batches) == reference()[2], "no epoch is given twice"
    batches.load_state_dict(after(4))
    batches.set_epoch(3)
    assert seen(batches) == reference()[3]


def test_set_epoch_of_the_state_at_its_end_is_an_empty_rest() -> None:
    """``for epoch in range(state["epoch"], epochs): loader.set_epoch(epoch)`` repeats no batch."""
    batches = resumed(after(6))
    batches.set_epoch(1)
    assert seen(batches) == []
    batches.set_epoch(2)
    assert seen(batches) == reference()[2]


def test_a_state_that_was_loaded_is_saved_again_as_it_is() -> None:
    state = after(3)
    again = resumed(state).state_dict()
    assert again == state
    assert seen(resumed(again)) == reference()[1][3:]


def test_a_state_that_is_loaded_in_mid_pass_counts_from_the_next() -> None:
    batches = loader()
    passing = iter(batches)
    next(passing)
    batches.load_state_dict(after(3))
    passing.close()  # type: ignore[attr-defined]
    assert seen(batches) == reference()[1][3:]
    assert seen(batches) == reference()[2]


def test_a_state_of_two_ranks_goes_on_with_one() -> None:
    ranks = [loader(rank=rank, world_size=2) for rank in range(2)]
    passes = [iter(rank) for rank in ranks]
    assert [samples(next(each)) for each in passes] == reference()[0][:2]
    assert seen(resumed(ranks[0].state_dict())) == reference()[0][2:]


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
        batches.load_state_dict(after(3) | wrong)
    assert seen(batches) == reference()[0]


# --- validation
# -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["val", "test"])
def test_a_name_is_a_name(name: str) -> None:
    batches = loader(name=name)
    assert [seen(batches) for _ in range(2)] == epochs(2, name=name)


def test_any_epoch_can_be_that_of_every_pass() -> None:
    batches = augmenter(name="train").loader(epoch=4)
    assert [seen(batches) for _ in range(2)] == [epochs(5, name="train")[4]] * 2


# --- as other libraries read it
# ---------------------------------------------------------------------------------------


def test_it_is_a_torch_dataloader_with_all_its_attributes() -> None:
    batches = loader(2)
    assert isinstance(batches, DataLoader)
    assert isinstance(batches.sampler, DistributedSampler)
    assert len(batches.dataset) == len(batches.batch_sampler) == 6
    assert (batches.num_workers, batches.drop_last, batches.pin_memory) == (0, False, False)
    assert (batches.batch_size, batches.generator, batches.persistent_workers) == (
        None,
        None,
        False,
    )
    assert (batches.timeout, batches.worker_init_fn, batches.prefetch_factor) == (0, None, None)
    assert callable(batches.collate_fn)
    batches.sampler.set_epoch(2)
    assert seen(batches) == reference()[2]


def test_its_batches_are_had_by_their_keys_in_any_order() -> None:
    batches = loader(2).dataset
    keys = [(0, 0), (0, 1), (3, 2), (1, 5), (0, 2), (0, 3)]
    assert [samples(batches[key]) for key in keys] == [
        reference()[epoch][step] for epoch, step in keys
    ]
    assert samples(batches[4]) == reference()[0][4]
    with pytest.raises(IndexError, match=r"steps 0 \.\.\. 5, not 6"):
        batches[6]


def test_a_ranks_data_set_has_the_batches_of_all() -> None:
    batches = loader(rank=1, world_size=2).dataset
    assert [samples(batches[0, step]) for step in range(6)] == reference()[0]


def test_a_loader_with_workers_made_of_it_is_told_what_to_do() -> None:
    batches = loader(1)
    next(iter(batches))
    many = DataLoader(
        batches.dataset,
        batch_sampler=batches.batch_sampler,
        collate_fn=batches.collate_fn,
        num_workers=1,
    )
    with pytest.raises(RuntimeError, match="make that DataLoader with num_workers=0"):
        seen(many)


def test_a_loader_that_is_sent_to_another_process_is_told_what_to_do() -> None:
    with pytest.raises(TypeError, match=r"ddp_spawn that is in train_dataloader\(\)"):
        pickle.dumps(loader())


@pytest.mark.parametrize("taken", [1, 3, 5, 6])
def test_a_stateful_dataloader_of_its_parts_resumes(taken: int) -> None:
    stateful = pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader

    def made() -> Any:
        batches = loader()
        return stateful(
            batches.dataset, batch_sampler=batches.batch_sampler, collate_fn=batches.collate_fn
        )

    first = made()
    assert seen(first) == reference()[0]
    passing = iter(first)
    assert seen(next(passing) for _ in range(taken)) == reference()[1][:taken]
    state = first.state_dict()
    second = made()
    second.load_state_dict(state)
    if taken < 6:
        assert seen(second) == reference()[1][taken:]
        assert seen(second) == reference()[2]


def test_the_state_of_one_of_two_loaders_says_which() -> None:
    batches = loader()
    other = DataLoader(
        batches.dataset, batch_sampler=batches.batch_sampler, collate_fn=batches.collate_fn
    )
    next(iter(other))
    with pytest.raises(RuntimeError, match="another DataLoader reads these batches"):
        batches.state_dict()


# --- other pipelines
# --------------------------------------------------------------------------------------------------


class Fails(Numbers):
    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 5:
            raise OSError("the file is damaged")
        return super().__getitem__(index)


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_that_fail_are_left_out_of_each_pass(workers: int) -> None:
    made = DeterministicAugmenter.from_dataset(
        Fails(), 2, num_processes=workers, seed=3, on_error=Skip(most=10)
    )
    batches = made.loader()
    expected = [[batch for batch in epoch if 5 not in batch] for epoch in reference()[:2]]
    assert [seen(batches) for _ in range(2)] == expected


def test_a_batch_that_fails_raises_and_the_next_pass_begins() -> None:
    batches = DeterministicAugmenter.from_dataset(Fails(), 2, num_processes=0, seed=3).loader()
    with pytest.raises(OSError, match="damaged"):
        seen(batches)
    assert samples(next(iter(batches))) == reference()[1][0]


class Counting:
    """A finite loader that keeps state, of a length that it does not say."""

    def __iter__(self) -> Iterator[Any]:
        yield from ({"data": np.array([number])} for number in range(5))


def data(batches: Any) -> list[list[int]]:
    return [batch["data"].tolist() for batch in batches]


def test_a_loader_of_unknown_length_is_refused() -> None:
    with pytest.raises(TypeError, match=r"Counting.* batches_per_epoch="):
        DeterministicAugmenter(Counting(), None, 0, seed=1).loader()


@pytest.mark.parametrize("workers", [0, 1])
def test_a_finite_stream_passes_and_resumes(workers: int) -> None:
    def made() -> Any:
        return DeterministicAugmenter(
            Counting(), None, workers, seed=1, num_streams=1, batches_per_epoch=5
        ).loader()

    batches, whole = made(), [[number] for number in range(5)]
    assert len(batches) == 5
    assert [data(batches) for _ in range(2)] == [whole, whole]
    passing = iter(batches)
    assert data(next(passing) for _ in range(2)) == whole[:2]
    resumed = made()
    resumed.load_state_dict(batches.state_dict())
    assert [data(resumed) for _ in range(2)] == [whole[2:], whole]


def test_a_look_in_mid_epoch_is_not_the_loops_place() -> None:
    batches = loader()
    passing = iter(batches)
    next(passing)
    next(iter(batches))
    next(passing)
    goes_on = resumed(batches.state_dict())
    assert seen(goes_on) == reference()[0][2:]
    assert seen(goes_on) == seen(batches)  # the look was epoch 1's


def test_each_loader_of_an_augmenter_has_a_place_of_its_own() -> None:
    both = augmenter()
    train, other = both.loader(), both.loader(epoch=2)
    passing = iter(train)
    next(passing)
    assert seen(other) == reference()[2]
    assert seen(resumed(train.state_dict())) == reference()[0][1:]
    assert seen(passing) == reference()[0][1:]


def test_batches_that_may_be_left_out_have_no_numbers() -> None:
    batches = loader(on_error=Skip())
    with pytest.raises(RuntimeError, match="on_error"):
        batches.dataset[0, 0]
