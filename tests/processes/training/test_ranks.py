"""Ranks and seeds in a real process group (gloo), and what is known without one.

Run as a program, this file is the process that starts the ranks: it has imported torch and used
none of its threads, so that forking them is quick and safe.
"""

from __future__ import annotations

import json
import os
import random
import sys

import numpy as np
import pytest
import torch
import torch.distributed

from detaug.seeding.ranks import RankUnknown, known_rank, process_group, rank_and_world_size
from detaug.training import isolate_rng, seed_everything
from tests.support.ranks import found_by_ranks, rank_file, start_ranks

RANKS = 3


def draws():
    return [random.random(), float(np.random.random()), float(torch.rand(1))]


def message_of(call):
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "nothing was raised"


def seeds_in_this_group(rank):
    """What every rank of a group does; each entry is compared between ranks."""
    found = {
        "group": process_group(),
        "known": [known_rank(), known_rank(rank), rank_and_world_size()[1]],
    }
    os.environ.pop("DETAUG_SEED", None)
    found["drawn"] = seed_everything(), draws(), os.environ["DETAUG_SEED"]

    os.environ.pop("DETAUG_SEED")
    found["drawn, apart"] = (
        seed_everything(diff_rank_seed=True),
        draws(),
        os.environ.pop("DETAUG_SEED"),
    )

    os.environ["DETAUG_SEED"] = str(70 + rank)
    found["from the environment"] = (
        seed_everything(workers=False),
        draws(),
        os.environ["DETAUG_SEED"],
    )

    os.environ["DETAUG_SEED"] = "seven" if rank == 0 else "7"
    found["wrong on rank 0"] = message_of(seed_everything)
    os.environ.pop("DETAUG_SEED")

    found["given"] = seed_everything(5, workers=False), draws()
    found["given, apart"] = seed_everything(5, diff_rank_seed=True, workers=False), draws()
    found["another rank"] = message_of(lambda: seed_everything(5, rank=rank + 1))
    return found


def run_rank(rank, folder):
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=RANKS
    )
    found = seeds_in_this_group(rank)
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()
    rank_file(folder, rank).write_text(json.dumps(found))


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    """What each rank found."""
    return found_by_ranks(__file__, RANKS, tmp_path_factory.mktemp("ranks"))


@pytest.fixture(autouse=True)
def _clean(monkeypatch):
    for variable in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("DETAUG_SEED", "")  # so that what a test leaves there is taken away again
    with isolate_rng():
        yield


class TestInAProcessGroup:
    def test_the_group_says_which_rank_this_is(self, ranks):
        assert [found["group"] for found in ranks] == [[rank, RANKS] for rank in range(RANKS)]
        assert [found["known"] for found in ranks] == [[r, r, RANKS] for r in range(RANKS)]

    def test_a_drawn_seed_is_one_on_all_ranks(self, ranks):
        first, *others = (found["drawn"] for found in ranks)
        assert all(other == first for other in others)
        assert first[2] == str(first[0])

    def test_ranks_can_draw_apart_and_still_return_the_common_seed(self, ranks):
        returned, numbers, exported = zip(*(found["drawn, apart"] for found in ranks), strict=True)
        assert len(set(returned)) == 1
        assert set(exported) == {str(returned[0])}
        for generator in zip(*numbers, strict=True):
            assert len(set(generator)) == RANKS

    def test_rank_0s_variable_counts_on_all_ranks(self, ranks):
        for rank, (seed, numbers, variable) in enumerate(
            found["from the environment"] for found in ranks
        ):
            assert seed == 70
            assert numbers == ranks[0]["from the environment"][1]
            assert variable == str(70 + rank), "workers=False leaves the environment alone"

    def test_a_wrong_variable_on_rank_0_is_an_error_on_all_ranks_and_none_waits(self, ranks):
        for found in ranks:
            assert found["wrong on rank 0"].startswith("ValueError: on rank 0: DETAUG_SEED='seven'")

    def test_a_given_seed_draws_what_it_draws_without_a_group(self, ranks):
        assert seed_everything(5) == 5
        alone = draws()
        for rank, found in enumerate(ranks):
            assert found["given"] == [5, alone]
            seed_everything(5, rank=rank, diff_rank_seed=True)
            assert found["given, apart"] == [5, draws()]

    def test_a_rank_that_contradicts_the_group_is_refused(self, ranks):
        for rank, found in enumerate(ranks):
            assert found["another rank"].startswith("ValueError: rank=")
            assert f"rank {rank} of {RANKS}" in found["another rank"]


@pytest.mark.parametrize("text", ["first", "-1", "1.0"])
def test_a_wrong_variable_is_named(monkeypatch, text):
    monkeypatch.setenv("RANK", text)
    with pytest.raises(ValueError, match=f"RANK='{text}'"):
        known_rank()
    assert seed_everything(3) == 3, "nobody asked for the rank"


def test_ranks_apart_need_a_rank(monkeypatch):
    for kind in (RankUnknown, RuntimeError, ValueError):
        with pytest.raises(kind, match="pass rank="):
            seed_everything(3, diff_rank_seed=True)
    monkeypatch.setenv("RANK", "2")
    seed_everything(3, diff_rank_seed=True)
    by_environment = draws()
    monkeypatch.setenv("RANK", "3")
    seed_everything(3, rank=np.int64(2), diff_rank_seed=True)
    assert draws() == by_environment, "a given rank counts, whatever the launcher's is"


@pytest.mark.parametrize(
    ("variables", "arguments"),
    [
        ({"WORLD_SIZE": "2"}, {}),
        ({"RANK": "1"}, {}),
        ({}, {"rank": 1}),
        ({"WORLD_SIZE": "2"}, {"rank": 0}),
    ],
)
def test_one_of_several_processes_does_not_draw_a_seed_for_itself(
    monkeypatch, variables, arguments
):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    for kind in (RuntimeError, ValueError):
        with pytest.raises(kind, match="each would draw a different one"):
            seed_everything(**arguments)
    monkeypatch.setenv("DETAUG_SEED", "12")
    assert seed_everything(**arguments) == 12


if __name__ == "__main__":
    start_ranks(run_rank, RANKS, sys.argv[1])
