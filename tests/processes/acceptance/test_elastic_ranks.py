"""A training goes on with another number of ranks, in mid-epoch: all ranks together see the same global stream."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from detaug import DeterministicAugmenter, StateMismatch
from tests.support.augmenters import Maker
from tests.support.comparing import prints, take, through_json
from tests.support.loaders import RandomSampler
from tests.support.stateful_loaders import Chain


class Ranks:
    """All ranks of a training in this process, each of which takes a batch in a round."""

    def __init__(self, make_rank: Callable[..., DeterministicAugmenter], world_size: int, state: Any = None) -> None:
        self.augmenters = [make_rank(rank=rank, world_size=world_size) for rank in range(world_size)]
        for augmenter in self.augmenters:
            if state is not None:
                augmenter.load_state_dict(through_json(state))
                augmenter.set_epoch(augmenter.epoch)

    def rounds(self, number: int) -> list[Any]:
        return [next(augmenter) for _ in range(number) for augmenter in self.augmenters]

    def rest(self) -> list[Any]:
        """The epoch's rest, in the global order; ranks whose rest is shorter leave no gap."""
        lists = [list(augmenter) for augmenter in self.augmenters]
        return [batch for at_once in itertools.zip_longest(*lists) for batch in at_once if batch is not None]

    def state(self, of_rank: int) -> Any:
        return self.augmenters[of_rank].state_dict()


@pytest.mark.parametrize("n", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_loaders_with_states_of_their_own_go_on_in_other_ranks(make: Maker, tmp_path: Path, n: int) -> None:
    """Streams that another rank had are stepped forward, the others restored."""
    options: dict[str, Any] = {"seed": 6, "num_streams": 4, "batches_per_epoch": 30}

    def rank_of(**place: int) -> DeterministicAugmenter:
        return make(Chain(tmp_path / "diary"), None, n, **options, **place)

    alone = make(Chain(tmp_path / "diary"), None, 0, **options)
    whole = [*prints(alone), *prints(alone)]
    seen, state = [], None
    for size in (2, 3, 4):
        ranks = Ranks(rank_of, size, state)
        seen += prints(ranks.rounds(2))
        state = ranks.state(size - 1)
        make.close()
    assert "loader_states" in state
    ranks = Ranks(rank_of, 2, state)
    seen += prints(ranks.rest())
    assert seen == whole[:30]
    assert prints(ranks.rest()) == whole[30:]


def test_an_older_state_dict_is_that_of_ranks_that_began_the_epoch(make: Maker) -> None:
    augmenter = make(RandomSampler(), None, 0, seed=6, batches_per_epoch=24, rank=1, world_size=4)
    take(augmenter, 3)
    state = augmenter.state_dict()
    assert "before" not in state, "it is what it was, and older versions read it"
    other = make(RandomSampler(), None, 0, seed=6, batches_per_epoch=24, rank=0, world_size=5)
    other.load_state_dict(state)
    assert (other.epoch, other.step, len(other)) == (0, 12, 2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"step": 2, "rank": 1}, "none of rank 1 of 4"),
        ({"step": 2, "rank": 3, "before": 1}, "none of rank 3 of 4"),
        ({"before": -1}, "before"),
        ({"before": "2"}, "before"),
    ],
)
def test_a_position_that_cannot_be_is_refused(make: Maker, change: dict[str, Any], message: str) -> None:
    augmenter = make(RandomSampler(), None, 0, seed=6, world_size=4)
    with pytest.raises((ValueError, TypeError), match=message):
        augmenter.load_state_dict({**augmenter.state_dict(), **change})


def test_a_rank_that_passed_the_end_of_a_stream_speaks_for_itself_alone(make: Maker) -> None:
    def rank_of(**place: int) -> DeterministicAugmenter:
        return make(UnevenStreams(), None, 0, seed=6, num_streams=4, batches_per_epoch=20, **place)

    zero = rank_of(rank=0, world_size=2)
    assert take(zero, 6) == [(0, 0), (2, 0), (0, 1), (2, 1), (0, 2), (0, 3)]
    state = through_json(zero.state_dict())
    same = rank_of(rank=0, world_size=2)
    same.load_state_dict(state)
    assert next(same) == next(zero)
    for place in ({"rank": 1, "world_size": 2}, {"rank": 0, "world_size": 1}):
        with pytest.raises(StateMismatch, match=r"streams of its own had ended.* Load each rank's own state"):
            rank_of(**place).load_state_dict(state)


class UnevenStreams:
    """Its stream 2 ends after two turns."""

    number_of_threads_in_multithreaded = 4

    def set_thread_id(self, thread_id):
        self.thread_id = thread_id

    def __iter__(self):
        for turn in range(2 if self.thread_id == 2 else 5):
            yield (self.thread_id, turn)
