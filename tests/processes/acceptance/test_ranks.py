"""Rank r of R takes steps r, r + R, … of one stream: its launcher, the tail of an epoch, and other
numbers of ranks.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from detaug import DataLoader, DeterministicAugmenter
from detaug.seeding.ranks import LAUNCHERS, RankUnknown
from tests.support.augmenters import Maker
from tests.support.comparing import fingerprints_of, take, through_json
from tests.support.loaders import IndexLoader, RandomSampler, Samples
from tests.support.stateful_loaders import Chain

#: Of ten batches, by rank of four.
TEN = {
    "drop": [[0, 4], [1, 5], [2, 6], [3, 7]],
    "pad": [[0, 4, 8], [1, 5, 9], [2, 6, 0], [3, 7, 1]],
}


#: Ten batches an epoch, of every kind of source.
SOURCES: dict[str, Callable[..., DeterministicAugmenter]] = {
    "stateless": lambda make, **place: make(
        RandomSampler(), None, 0, batches_per_epoch=10, seed=6, **place
    ),
    "bound to streams": lambda make, **place: make(
        IndexLoader(20, 2, threads=3), None, 0, seed=6, **place
    ),
    "data set": lambda make, **place: make.from_dataset(
        Samples(19), 2, num_processes=0, seed=6, **place
    ),
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
def test_ranks_get_what_the_tail_says_and_len_says_so_too(
    make: Maker, source: str, tail: str
) -> None:
    alone = SOURCES[source](make)
    whole = [fingerprints_of(alone), fingerprints_of(alone)]
    for rank, expected in enumerate(TEN[tail]):
        augmenter = SOURCES[source](make, rank=rank, world_size=4, tail=tail)
        assert len(augmenter) == len(expected)
        assert [fingerprints_of(augmenter), fingerprints_of(augmenter)] == [
            [epoch[step] for step in expected] for epoch in whole
        ]


def count_to_ten():
    yield from range(10)


@pytest.mark.parametrize("tail", TEN)
def test_several_ranks_want_a_number_and_hold_the_loader_to_it(make: Maker, tail: str) -> None:
    def rank_3(**options: Any) -> DeterministicAugmenter:
        return make(count_to_ten, None, 0, seed=6, rank=3, world_size=4, tail=tail, **options)

    with pytest.raises(
        ValueError, match=r"world_size=4 ranks.*number of batches.*batches_per_epoch"
    ):
        rank_3()
    assert list(rank_3(batches_per_epoch=10)) == TEN[tail][3]
    wrong = rank_3(batches_per_epoch=12)
    assert take(wrong, 2) == [3, 7]
    for _ in range(2):
        with pytest.raises(
            ValueError, match=r"no batch for step 11 of epoch 0, but it was to have 12.*4 ranks"
        ):
            next(wrong)


@pytest.mark.parametrize("n", [0, 2])
def test_ranks_of_a_loader_without_an_end_need_no_number(make: Maker, n: int) -> None:
    rank = make(RandomSampler(), None, n, seed=6, rank=2, world_size=3)
    assert steps(take(rank, 4)) == [2, 5, 8, 11]


@pytest.mark.parametrize("tail", TEN)
@pytest.mark.parametrize("batches_per_epoch", [None, 10])
def test_a_single_rank_gets_every_batch_once_with_either_tail(
    make: Maker, tail: str, batches_per_epoch: int | None
) -> None:
    """A program that runs on one GPU or on several says what several do."""
    length = {"batches_per_epoch": batches_per_epoch}
    assert list(make(count_to_ten, None, 0, seed=6, tail=tail, **length)) == [*range(10)]


@pytest.mark.parametrize(
    ("tail", "expected"),
    [
        ("drop", [[4, 7], [5, 8], [6, 9]]),
        ("pad", [[4, 7, 10], [5, 8, 0], [6, 9, 1]]),
    ],
)
def test_the_tail_after_a_change_of_ranks_in_mid_epoch(
    make: Maker, tail: str, expected: list[list[int]]
) -> None:
    options = {"batches_per_epoch": 11, "tail": tail, "seed": 6}
    four = make(RandomSampler(), None, 0, rank=1, world_size=4, **options)
    next(four)
    for rank, steps in enumerate(expected):
        augmenter = make(RandomSampler(), None, 0, rank=rank, world_size=3, **options)
        augmenter.load_state_dict(through_json(four.state_dict()))
        assert numbers(augmenter) == steps
        later = {"drop": 3, "pad": 4}[tail]
        assert len(augmenter) == len(numbers(augmenter)) == later


class Ranks:
    """All ranks of a training in this process, each of which takes a batch in a round."""

    def __init__(
        self, make_rank: Callable[..., DeterministicAugmenter], world_size: int, state: Any = None
    ) -> None:
        self.augmenters = [
            make_rank(rank=rank, world_size=world_size) for rank in range(world_size)
        ]
        for augmenter in self.augmenters:
            if state is not None:
                augmenter.load_state_dict(through_json(state))
                augmenter.set_epoch(augmenter.epoch)

    def rounds(self, number: int) -> list[Any]:
        return [next(augmenter) for _ in range(number) for augmenter in self.augmenters]

    def rest(self) -> list[Any]:
        """The epoch's rest, in the global order."""
        lists = [list(augmenter) for augmenter in self.augmenters]
        return [batch for at_once in zip(*lists, strict=True) for batch in at_once]

    def state(self, of_rank: int) -> Any:
        return self.augmenters[of_rank].state_dict()


@pytest.mark.parametrize("n", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_loaders_with_states_of_their_own_go_on_in_other_ranks(
    make: Maker, tmp_path: Path, n: int
) -> None:
    """Streams that another rank had are stepped forward, the others restored."""
    options: dict[str, Any] = {"seed": 6, "num_streams": 4, "batches_per_epoch": 30}

    def rank_of(**place: int) -> DeterministicAugmenter:
        return make(Chain(tmp_path / "diary"), None, n, **options, **place)

    alone = make(Chain(tmp_path / "diary"), None, 0, **options)
    whole = [*fingerprints_of(alone), *fingerprints_of(alone)]
    seen, state = [], None
    for size in (2, 3, 4):
        ranks = Ranks(rank_of, size, state)
        seen += fingerprints_of(ranks.rounds(2))
        state = ranks.state(size - 1)
        make.close()
    assert "loader_states" in state
    ranks = Ranks(rank_of, 2, state)
    seen += fingerprints_of(ranks.rest())
    assert seen == whole[:30]
    assert fingerprints_of(ranks.rest()) == whole[30:]


def test_an_older_state_dict_is_that_of_ranks_that_began_the_epoch(make: Maker) -> None:
    augmenter = make(RandomSampler(), None, 0, seed=6, batches_per_epoch=24, rank=1, world_size=4)
    take(augmenter, 3)
    state = augmenter.state_dict()
    assert "before" not in state, "it is what it was, and older versions read it"
    other = make(RandomSampler(), None, 0, seed=6, batches_per_epoch=24, rank=0, world_size=5)
    other.load_state_dict(state)
    assert (other.epoch, other.step, len(other)) == (0, 12, 4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"step": 2, "rank": 1}, "does not belong to rank 1 of 4"),
        ({"step": 2, "rank": 3, "before": 1}, "does not belong to rank 3 of 4"),
        ({"before": -1}, "before"),
        ({"before": "2"}, "before"),
    ],
)
def test_a_position_that_cannot_be_is_refused(
    make: Maker, change: dict[str, Any], message: str
) -> None:
    augmenter = make(RandomSampler(), None, 0, seed=6, world_size=4)
    with pytest.raises((ValueError, TypeError), match=message):
        augmenter.load_state_dict({**augmenter.state_dict(), **change})


def steps(batches: list[Any]) -> list[int]:
    return [batch["where"][1] for batch in batches]


@pytest.mark.parametrize(
    ("variables", "place"),
    [
        ({}, (0, 1)),
        ({"RANK": "2", "WORLD_SIZE": "4"}, (2, 4)),
        ({"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "3"}, (1, 3)),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "3"}, (0, 1)),  # a batch script is one process
        ({"OMPI_COMM_WORLD_RANK": "5", "OMPI_COMM_WORLD_SIZE": "6"}, (5, 6)),
    ],
)
def test_a_launchers_variables_are_filled_in(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], place: tuple[int, int]
) -> None:
    only(monkeypatch, variables)
    augmenter = DataLoader(Samples(19), 2, shard=True, seed=6).augmenter
    assert (augmenter.rank, augmenter.world_size) == place
    assert augmenter.step == place[0]


@pytest.mark.parametrize(
    ("variables", "told"),
    [
        ({"RANK": "1", "WORLD_SIZE": "4"}, "4 processes train together (this is rank 1)"),
        (
            {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "3"},
            "3 processes train together (this is rank 0)",
        ),
        (
            {"OMPI_COMM_WORLD_RANK": "5", "OMPI_COMM_WORLD_SIZE": "6"},
            "6 processes train together (this is rank 5)",
        ),
        (
            {"LOCAL_RANK": "1", "WORLD_SIZE": "2", "NODE_RANK": "0"},
            "2 processes train together (this is local rank 1)",
        ),
        ({"LOCAL_RANK": "2"}, "at least 3 processes train together (this is local rank 2)"),
        ({"RANK": "7"}, "at least 8 processes train together (this is rank 7)"),
    ],
)
def test_ranks_that_nobody_told_of_are_an_error_with_the_line_that_mends_it(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], told: str
) -> None:
    def new(**ranks: int) -> DeterministicAugmenter:
        return DeterministicAugmenter.from_dataset(Samples(4), 2, num_processes=0, seed=6, **ranks)

    only(monkeypatch, {})
    made_before = new()
    only(monkeypatch, variables)
    with pytest.raises(
        ValueError, match=r"Pass rank=torch\.distributed\.get_rank\(\).*detaug\.DataLoader\("
    ) as caught:
        new()
    assert str(caught.value).startswith(told)
    next(new(rank=0, world_size=1))  # all batches to every rank, on the user's word
    with pytest.raises(ValueError, match=re.escape(told)):
        next(made_before)


@pytest.mark.parametrize(
    "variables",
    [
        {"RANK": "gold"},
        {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"},
        {"LOCAL_RANK": "-1"},
        {"LOCAL_RANK": "0"},
        {"SLURM_PROCID": "0", "SLURM_NTASKS": "4", "SLURM_LOCALID": "0"},
        {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"},
    ],
)
def test_one_process_is_not_taken_for_several(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]
) -> None:
    only(monkeypatch, variables)
    assert steps([next(DeterministicAugmenter(RandomSampler(), None, 0, seed=6))]) == [0]


@pytest.mark.parametrize(
    "variables",
    [
        {"LOCAL_RANK": "0"},
        {"LOCAL_RANK": "1", "WORLD_SIZE": "2"},
        {"WORLD_SIZE": "2"},
        {"RANK": "1"},
    ],
)
def test_a_rank_that_nothing_says_is_not_filled_in(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]
) -> None:
    only(monkeypatch, variables)
    with pytest.raises(RankUnknown, match=next(iter(variables)) + r".*train_dataloader\(\)"):
        len(DataLoader(Samples(19), 2, shard=True, seed=6))


def only(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]) -> None:
    """No launcher's variables but these."""
    for name in ("LOCAL_RANK", *(name for pair in LAUNCHERS for name in pair)):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


def test_ranks_that_would_each_draw_a_seed_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_PROCID", "1")
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "3")
    with pytest.raises(
        ValueError, match=r"each would draw a different one: pass seed=.*DETAUG_SEED"
    ):
        next(iter(DataLoader(Samples(19), 2, shard=True)))
    monkeypatch.setenv("DETAUG_SEED", "9")
    assert DataLoader(Samples(19), 2, shard=True).augmenter.seed == 9
