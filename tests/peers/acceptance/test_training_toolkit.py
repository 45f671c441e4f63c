"""The training toolkit in real trainings: the same weights, byte for byte."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed
import torch.multiprocessing

from detaug.training import isolate_rng
from tests.peers.acceptance.unet_training import STEPS, Training, train, train_on, train_until


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    """Sums of more threads are rounded in another order: the number of threads is a part of what a result depends on."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(autouse=True)
def _generators_of_the_test_run_are_left_alone() -> Iterator[None]:
    with isolate_rng():
        yield


@pytest.fixture(scope="module")
def expected(_one_thread: None) -> tuple[str, list[float]]:
    """What an undisturbed run in this process, with its batches made in it, ends with."""
    with isolate_rng():
        return train(num_processes=0)


def test_the_same_seed_gives_the_same_weights_with_any_number_of_workers(expected: tuple[str, list[float]]) -> None:
    assert train(num_processes=1) == expected
    assert train(num_processes=3) == expected


def test_another_seed_gives_other_weights(expected: tuple[str, list[float]]) -> None:
    assert train(num_processes=0, seed=12)[0] != expected[0]


@pytest.mark.parametrize(
    "step",
    [each if each in (1, 5, STEPS) else pytest.param(each, marks=pytest.mark.slow) for each in range(1, STEPS + 1)],
)
def test_a_run_paused_at_any_step_ends_with_the_same_weights(
    expected: tuple[str, list[float]], tmp_path: Path, step: int
) -> None:
    file = tmp_path / "checkpoint.pth"
    train_until(step, file, num_processes=step % 3)
    assert train_on(file, num_processes=(step + 1) % 3) == expected[0]


# --- ranks


def rank_of_a_job(rank: int, world_size: int, folder: str) -> None:
    """One rank over gloo: a run, the same again, and one that is paused after three steps and resumed."""
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=world_size
    )
    checkpoint = Path(folder, f"checkpoint-{rank}")
    first = run_of_a_rank(rank, world_size)
    again = run_of_a_rank(rank, world_size)
    paused = run_of_a_rank(rank, world_size, save_to=checkpoint, stop=3)
    resumed = run_of_a_rank(rank, world_size, resume_from=checkpoint)
    record = {"first": first, "again": again, "paused": paused, "resumed": resumed}
    torch.save(record, Path(folder, f"record-{rank}"))
    torch.distributed.destroy_process_group()


def run_of_a_rank(
    rank: int, world_size: int, resume_from: Path | None = None, save_to: Path | None = None, stop: int = STEPS
) -> tuple[str, list[float]]:
    training = Training(0, rank=rank, world_size=world_size)
    if resume_from is not None:
        training.resume(resume_from)
    bare = training.network
    # Without it, buckets of gradients are made anew after a process's first step, and a sum over four ranks is rounded in
    # another order in the step after a resume than in a run that was not paused.
    training.network = torch.nn.parallel.DistributedDataParallel(bare, find_unused_parameters=True)
    with training.augmenter:
        losses = list(itertools.islice(training.steps(), stop))
        training.network = bare
        if save_to is not None:
            training.save(save_to)
    return training.weights(), losses


@pytest.mark.parametrize("world_size", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_ranks_over_gloo_end_with_the_same_weights_twice_and_resumed(
    tmp_path: Path, world_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    torch.multiprocessing.start_processes(
        rank_of_a_job, (world_size, str(tmp_path)), nprocs=world_size, start_method="fork"
    )
    ranks = [torch.load(tmp_path / f"record-{rank}", weights_only=True) for rank in range(world_size)]
    assert len({rank["first"][0] for rank in ranks}) == 1, "ranks of one job hold the same weights"
    assert len({tuple(rank["first"][1]) for rank in ranks}) == world_size, "each rank has batches of its own"
    for rank in ranks:
        assert rank["again"] == rank["first"]
        assert rank["paused"][0] != rank["first"][0]
        assert rank["resumed"][0] == rank["first"][0]
        assert rank["paused"][1] + rank["resumed"][1] == rank["first"][1]
