"""`detaug.DataLoader` with workers, in forks and threads, and on ranks of a process group.

Run as a program, this file is the process that forks two ranks of a gloo group.
"""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed
from torch.utils.data import Subset, WeightedRandomSampler, get_worker_info

from detaug import DataLoader, LocalProcesses, fingerprint
from detaug.errors import BatchError
from tests.support.numbers import Numbers, Seen, epochs, loader, samples, seen
from tests.support.processes import worker_pids
from tests.support.ranks import found_by_ranks, rank_file, start_ranks
from tests.support.waiting import PATIENCE, run_in_threads


@pytest.fixture
def closing() -> Iterator[list[DataLoader[Any]]]:
    """Loaders that are closed at the end."""
    loaders: list[DataLoader[Any]] = []
    yield loaders
    for each in loaders:
        each.close()


@pytest.mark.parametrize("workers", [1, 2])
def test_batches_are_the_same_for_any_number_of_workers(
    closing: list[DataLoader[Any]], workers: int
) -> None:
    batches = loader(num_workers=workers)
    closing.append(batches)
    alone = loader()
    for _ in range(2):
        assert [fingerprint(batch) for batch in batches] == [fingerprint(batch) for batch in alone]


def test_a_killed_worker_changes_nothing(closing: list[DataLoader[Any]]) -> None:
    batches = loader(num_workers=1, prefetch_factor=1)
    closing.append(batches)
    passing = iter(batches)
    found = [samples(next(passing))]
    for pid in worker_pids():
        os.kill(pid, signal.SIGKILL)
    assert found + seen(passing) == epochs(1)[0]


def test_the_arguments_reach_the_augmenter(closing: list[DataLoader[Any]]) -> None:
    batches = loader(
        num_workers=2, prefetch_factor=3, timeout=60, multiprocessing_context="spawn", keep=("a",)
    )
    closing.append(batches)
    augmenter = batches.augmenter
    assert augmenter.executor == LocalProcesses(start_method="spawn", stall_timeout=60)
    assert augmenter.num_processes + augmenter.num_cached == 6, "as many as torch prefetches"
    assert augmenter.keep == ("a",)
    context = multiprocessing.get_context("fork")
    forked = loader(num_workers=1, multiprocessing_context=context)
    assert forked.augmenter.executor == LocalProcesses(start_method="fork")


class WithWorker(Numbers):
    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor([float(index), self.offset])


def set_offset(worker: int) -> None:
    info = get_worker_info()
    assert info is not None
    info.dataset.offset = 5.0 + 0 * worker


def test_worker_init_fn_is_called_in_every_worker(closing: list[DataLoader[Any]]) -> None:
    batches = DataLoader(WithWorker(), 4, num_workers=2, worker_init_fn=set_offset, seed=1)
    closing.append(batches)
    assert torch.cat(list(batches))[:, 1].tolist() == [5.0] * 12


@pytest.mark.parametrize("workers", [0, 2])
def test_threads_read_passes_of_their_own(closing: list[DataLoader[Any]], workers: int) -> None:
    batches = loader(num_workers=workers)
    closing.append(batches)
    found: list[list[Seen]] = []
    have_begun = threading.Barrier(2)

    def read() -> None:
        passing = iter(batches)
        first = samples(next(passing))
        have_begun.wait(PATIENCE)
        found.append([first, *seen(passing)])

    run_in_threads([read] * 2, "a thread has read its pass")
    assert sorted(found) == sorted(epochs(2))


@pytest.mark.parametrize("workers", [0, 2])
def test_threads_share_a_pass(closing: list[DataLoader[Any]], workers: int) -> None:
    batches = loader(num_workers=workers)
    closing.append(batches)
    passing = iter(batches)
    found: list[Seen] = []

    def read() -> None:
        found.extend(seen(passing))

    run_in_threads([read] * 3, "a thread has read its share of the pass")
    assert sorted(found) == sorted(epochs(1)[0])


@pytest.mark.parametrize("workers", [0, 2])
def test_a_sampler_that_fails_fails_the_batch(
    closing: list[DataLoader[Any]], workers: int, caplog: pytest.LogCaptureFixture
) -> None:
    batches = loader(batch_size=1, shuffle=None, batch_sampler=[[0], []], num_workers=workers)
    closing.append(batches)
    with pytest.raises(BatchError, match="gave a batch without samples"):
        next(iter(batches))
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_a_fork_reads_a_loader_that_was_only_made(closing: list[DataLoader[Any]]) -> None:
    batches = loader(num_workers=1)
    closing.append(batches)
    with multiprocessing.get_context("fork").Pool(1) as pool:
        asked = pool.apply_async(first_epoch_of, (batches,))
        assert asked.get(PATIENCE) == epochs(1)[0]
    assert seen(batches) == epochs(1)[0]


def first_epoch_of(batches: DataLoader[Any]) -> list[Seen]:
    try:
        return seen(batches)
    finally:
        batches.close()


# --- ranks
# --------------------------------------------------------------------------------------------------------------


def cases(rank: int) -> dict[str, Any]:
    """What rank `rank` of two finds."""
    found: dict[str, Any] = {}
    torch.manual_seed(10 + rank)
    drawn = loader(14, shard=True, seed=None)
    found["shared, with a drawn seed"] = [seen(drawn) for _ in range(2)]
    found["its seed"] = drawn.augmenter.seed
    found["shared, the last round dropped"] = seen(loader(14, shard=True, drop_last=True))
    weighted = WeightedRandomSampler([1.0] * 11 + [30.0], 12)
    found["a custom sampler"] = seen(loader(shuffle=None, sampler=weighted, shard=True))
    found["not shared"] = seen(loader())
    for late_rank in range(2):
        found[f"rank {late_rank} late"] = read_in_turn(rank, late_rank)
    part = Subset(Numbers(), range(rank, 12, 2))
    found["a part each"] = seen(DataLoader(part, 2, seed=3, check=False, name="part"))
    if rank == 0:
        found["a validation of rank 0 alone"] = seen(loader(seed=None, shuffle=False, epoch=0))
    return found


def read_in_turn(rank: int, late_rank: int) -> list[Seen]:
    """Read a pass without sharing; one rank begins when the other has ended."""
    batches = loader(name=f"rank {late_rank} late")
    if rank == late_rank:
        torch.distributed.barrier()
    found = seen(batches)
    if rank != late_rank:
        torch.distributed.barrier()
    return found


def run_rank(rank: int, folder: str) -> None:
    lines: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("detaug").addHandler(handler)
    early = loader(shard=True)
    told = len(early)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2
    )
    found = cases(rank)
    try:
        next(iter(early))
    except RuntimeError as error:
        found["told before the group"] = [told, str(error)]
    found["warnings"] = lines
    rank_file(folder, rank).write_text(json.dumps(found))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return found_by_ranks(__file__, 2, tmp_path_factory.mktemp("ranks"))


def of(ranks: list[dict[str, Any]], case: str) -> list[Any]:
    """The batches of both ranks, as tuples."""
    return [[tuple(batch) for batch in found[case]] for found in ranks]


def test_ranks_that_share_take_rank_0s_seed_and_the_first_batch_once_more(
    ranks: list[dict[str, Any]],
) -> None:
    seed = ranks[0]["its seed"]
    assert ranks[1]["its seed"] == seed
    for epoch, whole in enumerate(epochs(2, length=14, seed=seed)):
        parts = [
            [tuple(batch) for batch in found["shared, with a drawn seed"][epoch]] for found in ranks
        ]
        assert parts == [whole[0::2], [*whole[1::2], whole[0]]]


def test_ranks_that_share_drop_the_last_round(ranks: list[dict[str, Any]]) -> None:
    (whole,) = epochs(1, length=14)
    assert of(ranks, "shared, the last round dropped") == [whole[0:6:2], whole[1:6:2]]


def test_ranks_share_the_batches_of_a_custom_sampler(ranks: list[dict[str, Any]]) -> None:
    weighted = WeightedRandomSampler([1.0] * 11 + [30.0], 12)
    (whole,) = epochs(1, shuffle=None, sampler=weighted)
    assert of(ranks, "a custom sampler") == [whole[0::2], whole[1::2]]


def test_ranks_that_do_not_share_get_what_they_pass_and_are_told_once(
    ranks: list[dict[str, Any]],
) -> None:
    assert of(ranks, "not shared") == [epochs(1)[0]] * 2
    warnings = [line for found in ranks for line in found["warnings"] if "'shuffled'" in line]
    assert ["shard=True" in line for line in warnings] == [True]


@pytest.mark.parametrize("late_rank", [0, 1])
def test_the_rank_that_reads_later_is_told_of_the_same_batches(
    ranks: list[dict[str, Any]], late_rank: int
) -> None:
    name = f"rank {late_rank} late"
    batches = of(ranks, name)
    assert batches[0] == batches[1]
    told = [any(f"{name!r}" in line for line in found["warnings"]) for found in ranks]
    assert told == [rank == late_rank for rank in range(2)]


def test_ranks_that_read_parts_of_their_own_are_told_nothing(ranks: list[dict[str, Any]]) -> None:
    assert not [line for found in ranks for line in found["warnings"] if "'part'" in line]


def test_a_validation_of_one_rank_waits_for_nobody(ranks: list[dict[str, Any]]) -> None:
    assert len(ranks[0]["a validation of rank 0 alone"]) == 6


def test_a_length_that_was_told_before_the_process_group_is_an_error(
    ranks: list[dict[str, Any]],
) -> None:
    for found in ranks:
        told, message = found["told before the group"]
        assert told == 6
        assert "is 3 now that there are 2 ranks" in message


if __name__ == "__main__":
    start_ranks(run_rank, 2, sys.argv[1])
