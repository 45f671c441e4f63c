"""Ranks that have different seeds are told, and so are a training and a validation that have the
same random numbers.

Run as a program, this file is the process that forks two ranks of a gloo group.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch.distributed

from detaug import DeterministicAugmenter, current
from tests.support.ranks import found_by_ranks, rank_file, start_ranks


class Loader:
    def __init__(self, split: str = "train") -> None:
        self.split = split

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> dict[str, Any]:
        return {"data": current().generator.random(2)}


def run_rank(rank: int, folder: str) -> None:
    made_before = DeterministicAugmenter(Loader(), None, 0, seed=1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2
    )
    found: dict[str, list[str]] = {}
    cases = {
        "same": (5, "train"),
        "different": (5 + rank, "train"),
        "drawn": (None, "val"),
        "same again": (6, "train"),
    }
    for case, (seed, name) in cases.items():
        augmenter = DeterministicAugmenter(
            Loader(),
            None,
            0,
            seed=seed,
            name=name,
            rank=rank,
            world_size=2,
            batches_per_epoch=8,
        )
        found[case] = [outcome_of_next(augmenter) for _ in range(3)]
    own = DeterministicAugmenter(Loader(), None, 0, seed=5 + rank, rank=0, world_size=1)
    found["ranks of its own"] = [outcome_of_next(own)]
    found["not told of the ranks"] = [outcome_of_next(made_before)]
    found["not told of the ranks"] += [
        refusal(lambda: DeterministicAugmenter(Loader(), None, 0, seed=1))
    ]
    found["not told of the ranks"] += [
        refusal(lambda: DeterministicAugmenter.from_dataset([1, 2], 1))
    ]
    if rank == 0:
        found["only here"] = [
            outcome_of_next(
                DeterministicAugmenter(
                    Loader(), None, 0, seed=7, name="x", world_size=2, batches_per_epoch=8
                )
            )
        ]
    rank_file(folder, rank).write_text(json.dumps(found))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def outcome_of_next(augmenter: DeterministicAugmenter) -> str:
    """The error's text, or nothing. All ranks come to the end of a step together, as in a training."""
    try:
        next(augmenter)
    except ValueError as error:
        return str(error)
    finally:
        if augmenter.world_size == 2 and augmenter.name != "x":
            torch.distributed.barrier()
    return ""


def refusal(function: Callable[[], Any]) -> str:
    try:
        function()
    except ValueError as error:
        return str(error)
    return ""


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, list[str]]]:
    return found_by_ranks(__file__, 2, tmp_path_factory.mktemp("ranks"))


@pytest.mark.parametrize("case", ["same", "same again", "ranks of its own"])
def test_ranks_of_one_seed_go_on(ranks: list[dict[str, list[str]]], case: str) -> None:
    for found in ranks:
        assert set(found[case]) == {""}


def test_what_was_not_told_of_the_ranks_is_refused_when_made_or_at_its_first_batch(
    ranks: list[dict[str, list[str]]],
) -> None:
    for rank, found in enumerate(ranks):
        for message in found["not told of the ranks"]:
            assert (
                f"2 processes train together (this is rank {rank}), and 1 is known of here"
                in message
            )
            assert "detaug.DataLoader(..., shard=True)" in message


def test_nobody_waits_for_ranks_that_make_no_augmenter(ranks: list[dict[str, list[str]]]) -> None:
    assert ranks[0]["only here"] == [""]


@pytest.mark.parametrize("case", ["different", "drawn"])
def test_a_rank_with_another_seed_than_rank_0_is_an_error(
    ranks: list[dict[str, list[str]]], case: str
) -> None:
    first, other = (found[case] for found in ranks)
    assert set(first) == {""}
    assert "" not in other[1:], "at the second step it knows"
    for message in other[1:]:
        assert "Pass the same seed on all ranks" in message
    if case == "different":
        assert "rank 0 has seed 5, rank 1 has seed 6" in other[1]


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        text for record in caplog.records if "same random numbers" in (text := record.getMessage())
    ]


def repetitions(caplog: pytest.LogCaptureFixture) -> list[str]:
    messages = [record.getMessage() for record in caplog.records]
    return [message for message in messages if "give the same batches" in message]


def numbers(*augmenters: DeterministicAugmenter) -> list[Any]:
    return [next(augmenter)["data"].tolist() for augmenter in augmenters]


@pytest.mark.parametrize("n", [0, 1])
def test_train_and_val_of_one_seed_without_names_are_told_once(
    caplog: pytest.LogCaptureFixture, n: int
) -> None:
    with (
        DeterministicAugmenter(Loader("train"), None, n, seed=9000 + n) as train,
        DeterministicAugmenter(Loader("val"), None, n, seed=9000 + n) as val,
    ):
        first, second = numbers(train, val)
        assert first == second, "they do draw the same"
        assert len(said(caplog)) == 1
        assert 'name="train" and name="val"' in said(caplog)[0]
        numbers(train, val)
    assert len(said(caplog)) == 1


def test_nothing_is_said_of_names_seeds_and_ranks_of_their_own_and_of_repetitions(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with (
        DeterministicAugmenter(Loader("train"), None, 0, seed=9010, name="train") as train,
        DeterministicAugmenter(Loader("val"), None, 0, seed=9010, name="val") as val,
        DeterministicAugmenter(Loader("other"), None, 0, seed=9011) as other,
        DeterministicAugmenter(Loader("other"), None, 0, seed=9011) as again,
        DeterministicAugmenter(
            Loader("a"), None, 0, seed=9012, rank=0, world_size=2, batches_per_epoch=8
        ) as first,
        DeterministicAugmenter(
            Loader("b"), None, 0, seed=9012, rank=1, world_size=2, batches_per_epoch=8
        ) as second,
    ):
        numbers(train, val, other, again, first, second)
    with DeterministicAugmenter(Loader("after the others were closed"), None, 0, seed=9011) as last:
        numbers(last)
    assert said(caplog) == []


def test_the_same_pipeline_twice_at_the_same_time_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "detaug")
    with DeterministicAugmenter(Loader(), None, 0, seed=9020) as first:
        numbers(first)
        first.restart()
        numbers(first)
        assert repetitions(caplog) == [], "it repeats itself on purpose"
        with (
            DeterministicAugmenter(Loader(), None, 0, seed=9020) as second,
            DeterministicAugmenter(Loader(), None, 0, seed=9020) as third,
        ):
            assert numbers(second) == numbers(third)
    (message,) = repetitions(caplog)
    assert "seed 9020 and name=''" in message
    assert 'name="train" and name="val"' in message


if __name__ == "__main__":
    start_ranks(run_rank, 2, sys.argv[1])
