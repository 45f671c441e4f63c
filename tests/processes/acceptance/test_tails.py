"""The batches of an epoch that do not fill all ranks: `tail`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from detaug import DeterministicAugmenter, StateMismatch
from tests.support.augmenters import Maker
from tests.support.comparing import prints, take, through_json
from tests.support.loaders import IndexLoader, RandomSampler, Samples

#: Of ten batches, by rank of four.
TEN = {
    "drop": [[0, 4], [1, 5], [2, 6], [3, 7]],
    "pad": [[0, 4, 8], [1, 5, 9], [2, 6, 0], [3, 7, 1]],
    "uneven": [[0, 4, 8], [1, 5, 9], [2, 6], [3, 7]],
}


#: Ten batches an epoch, of every kind of source.
SOURCES: dict[str, Callable[..., DeterministicAugmenter]] = {
    "stateless": lambda make, **place: make(RandomSampler(), None, 0, batches_per_epoch=10, seed=6, **place),
    "bound to streams": lambda make, **place: make(IndexLoader(20, 2, threads=3), None, 0, seed=6, **place),
    "data set": lambda make, **place: make.from_dataset(Samples(19), 2, num_processes=0, seed=6, **place),
}


def numbers(augmenter: DeterministicAugmenter) -> list[int]:
    """The steps of an epoch's batches."""
    found = []
    for batch in augmenter:
        assert batch["where"][0] == augmenter.epoch
        found.append(batch["where"][1])
    return found


@pytest.mark.parametrize("tail", TEN)
@pytest.mark.parametrize("source", SOURCES)
def test_ranks_get_what_the_tail_says_and_len_says_so_too(make: Maker, source: str, tail: str) -> None:
    alone = SOURCES[source](make)
    whole = [prints(alone), prints(alone)]
    for rank, expected in enumerate(TEN[tail]):
        augmenter = SOURCES[source](make, rank=rank, world_size=4, tail=tail)
        assert len(augmenter) == len(expected)
        assert [prints(augmenter), prints(augmenter)] == [[epoch[step] for step in expected] for epoch in whole]


def count_to_ten():
    yield from range(10)


def test_padding_wants_a_number_and_holds_the_loader_to_it(make: Maker) -> None:
    with pytest.raises(ValueError, match=r"tail='pad' needs the number of batches .* batches_per_epoch"):
        make(count_to_ten, None, 0, seed=6, world_size=4, tail="pad")
    right = make(count_to_ten, None, 0, seed=6, rank=3, world_size=4, tail="pad", batches_per_epoch=10)
    assert list(right) == TEN["pad"][3]
    wrong = make(count_to_ten, None, 0, seed=6, rank=3, world_size=4, tail="pad", batches_per_epoch=12)
    assert take(wrong, 2) == [3, 7]
    for _ in range(2):
        with pytest.raises(ValueError, match="no batch for step 11 of epoch 0, but an epoch was to have 12"):
            next(wrong)


@pytest.mark.parametrize(
    ("tail", "expected"),
    [
        ("drop", [[4, 7], [5, 8], [6, 9]]),
        ("pad", [[4, 7, 10], [5, 8, 0], [6, 9, 1]]),
        ("uneven", [[4, 7, 10], [5, 8], [6, 9]]),
    ],
)
def test_the_tail_after_a_change_of_ranks_in_mid_epoch(make: Maker, tail: str, expected: list[list[int]]) -> None:
    options = {"batches_per_epoch": 11, "tail": tail, "seed": 6}
    four = make(RandomSampler(), None, 0, rank=1, world_size=4, **options)
    next(four)
    for rank, steps in enumerate(expected):
        augmenter = make(RandomSampler(), None, 0, rank=rank, world_size=3, **options)
        augmenter.load_state_dict(through_json(four.state_dict()))
        assert len(augmenter) == len(steps)
        assert numbers(augmenter) == steps
        later = {"drop": 3, "pad": 4, "uneven": 4 if rank < 2 else 3}[tail]
        assert len(augmenter) == len(numbers(augmenter)) == later


def test_a_rank_without_a_batch_in_the_last_round_does_not_speak_for_the_others(make: Maker) -> None:
    options: dict[str, Any] = {"seed": 6, "batches_per_epoch": 10, "tail": "uneven"}
    ranks = [make(RandomSampler(), None, 0, rank=rank, world_size=4, **options) for rank in range(4)]
    for rank in ranks:
        take(rank, 2)
    other = make(RandomSampler(), None, 0, rank=0, world_size=2, **options)
    other.load_state_dict(ranks[0].state_dict())
    assert numbers(other) == [8]
    with pytest.raises(StateMismatch, match="Load rank 0's state, which is always enough for all"):
        other.load_state_dict(ranks[2].state_dict())
    again = make(RandomSampler(), None, 0, rank=2, world_size=4, **options)
    again.load_state_dict(ranks[2].state_dict())
    again.set_epoch(0)
    assert numbers(again) == []
    assert numbers(again) == [2, 6]
