"""Rank r of R takes steps r, r + R, … of the one global stream."""

from __future__ import annotations

import re
from typing import Any

import pytest

from detaug import DeterministicAugmenter
from detaug.seeding.ranks import LAUNCHERS, RankUnknown
from tests.support.loaders import RandomSampler, Samples


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
    augmenter = DeterministicAugmenter.from_torch_distributed(RandomSampler(), None, 0, seed=6)
    assert (augmenter.rank, augmenter.world_size) == place
    assert steps([next(augmenter)]) == [place[0]]


@pytest.mark.parametrize(
    ("variables", "told"),
    [
        ({"RANK": "1", "WORLD_SIZE": "4"}, "4 processes train together (this is rank 1)"),
        ({"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "3"}, "3 processes train together (this is rank 0)"),
        ({"OMPI_COMM_WORLD_RANK": "5", "OMPI_COMM_WORLD_SIZE": "6"}, "6 processes train together (this is rank 5)"),
        ({"LOCAL_RANK": "1", "WORLD_SIZE": "2", "NODE_RANK": "0"}, "2 processes train together (this is local rank 1)"),
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
    with pytest.raises(ValueError, match=r"Write DeterministicAugmenter\.from_torch_distributed\(") as caught:
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
def test_one_process_is_not_taken_for_several(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]) -> None:
    only(monkeypatch, variables)
    assert steps([next(DeterministicAugmenter(RandomSampler(), None, 0, seed=6))]) == [0]


@pytest.mark.parametrize(
    "variables", [{"LOCAL_RANK": "0"}, {"LOCAL_RANK": "1", "WORLD_SIZE": "2"}, {"WORLD_SIZE": "2"}, {"RANK": "1"}]
)
def test_a_rank_that_nothing_says_is_not_filled_in(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]) -> None:
    only(monkeypatch, variables)
    with pytest.raises(RankUnknown, match=next(iter(variables)) + r".*train_dataloader\(\)"):
        DeterministicAugmenter.from_torch_distributed(RandomSampler(), None, 0, seed=6)


def only(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]) -> None:
    """No launcher's variables but these."""
    for name in ("LOCAL_RANK", *(name for pair in LAUNCHERS for name in pair)):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


def test_ranks_that_would_each_draw_a_seed_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_PROCID", "1")
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "3")
    with pytest.raises(ValueError, match="each would draw another: pass seed=, set DETAUG_SEED"):
        DeterministicAugmenter.from_torch_distributed(RandomSampler(), None, 0)
    monkeypatch.setenv("DETAUG_SEED", "9")
    assert DeterministicAugmenter.from_torch_distributed(RandomSampler(), None, 0).seed == 9
