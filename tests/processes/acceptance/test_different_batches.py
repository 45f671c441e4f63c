"""Another seed, name, epoch, step, stream or rank means other numbers; stock workers share theirs."""

from __future__ import annotations

import multiprocessing
from pathlib import Path
from typing import Any

import pytest
import torch
from batchgenerators.dataloading.data_loader import SlimDataLoaderBase
from batchgenerators.dataloading.nondet_multi_threaded_augmenter import NonDetMultiThreadedAugmenter

from tests.support.augmenters import Maker
from tests.support.comparing import prints, take
from tests.support.loaders import Noise, RandomLoader
from tests.support.processes import wait_until
from tests.support.witness import assert_made_by_workers


def test_no_two_epochs_share_a_batch(make: Maker) -> None:
    augmenter = make(RandomLoader(), Noise(), 0, seed=1, batches_per_epoch=10)
    epochs = [set(prints(augmenter)) for _ in range(5)]
    assert len(set.union(*epochs)) == 50


@pytest.mark.parametrize("stateless", [True, False])
@pytest.mark.parametrize("library", ["python", "numpy", "torch", "own"])
def test_no_two_workers_draw_the_same_numbers(
    make: Maker, mark: str, tmp_path: Path, library: str, stateless: bool
) -> None:
    loader = RandomLoader(meeting=str(tmp_path), parties=3)
    batches = take(make(loader, None, 3, seed=1, stateless=stateless), 12)
    assert_made_by_workers("fork", batches, at_least=3)
    drawn = [str(batch[library]) for batch in batches]
    assert len(set(drawn)) == 12


class InStep(SlimDataLoaderBase):
    """Makes its k-th batch only once all three workers are about to make theirs, so that each makes as many."""

    def __init__(self, folder: Path, workers: int) -> None:
        super().__init__(None, 1)
        self._folder, self._workers, self._count = folder, workers, 0

    def generate_train_batch(self) -> dict[str, Any]:
        self._count += 1
        turn = self._folder / str(self._count)
        turn.mkdir(exist_ok=True)
        (turn / str(self.thread_id)).touch()
        wait_until(lambda: len(list(turn.iterdir())) >= self._workers, "all workers at one turn", patience=20)
        return {"torch": torch.rand(3), "worker": self.thread_id}


@pytest.mark.skipif(multiprocessing.get_start_method() != "fork", reason="stock workers inherit state by fork only")
def test_stock_workers_without_seeds_draw_the_same_torch_numbers(tmp_path: Path) -> None:
    stock = NonDetMultiThreadedAugmenter(InStep(tmp_path, 3), None, 3, 2, None)
    try:
        batches = [next(stock) for _ in range(12)]
    finally:
        stock._finish(timeout=1)
    assert len({batch["worker"] for batch in batches}) > 1
    assert len({str(batch["torch"]) for batch in batches}) < 12
