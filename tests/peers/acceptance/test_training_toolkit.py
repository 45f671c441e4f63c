"""The training toolkit in real trainings: the same weights, byte for byte. Trainings of ranks are in tests/peers/loops."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from detaug.training import isolate_rng
from tests.peers.acceptance.unet_training import STEPS, train, train_on, train_until


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
