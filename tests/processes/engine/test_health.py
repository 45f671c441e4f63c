"""What `stats` tells, and the line about a loop that waits."""

from __future__ import annotations

import logging
import os
import signal
import time
from typing import Any

import pytest
from batchgenerators.dataloading.data_loader import DataLoader

from detaug import Check, LocalProcesses
from detaug.engine import wait_stats as health
from tests.support.augmenters import Maker


class Pids(DataLoader):
    def __init__(self) -> None:
        super().__init__(None, 1, infinite=True)

    def generate_train_batch(self) -> dict[str, Any]:
        return {"pid": os.getpid()}


def slow(**batch: Any) -> dict[str, Any]:
    time.sleep(0.01)
    return batch


OPTIONS = {"seed": 1, "check": Check(ignore=("pid",)), "batches_per_epoch": 20}


@pytest.fixture(autouse=True)
def short_epochs_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "_SHORTEST", 0.0)


@pytest.mark.parametrize(
    ("processes", "who"), [(0, "the calling process (num_processes=0)"), (2, "2 workers")]
)
def test_a_loop_that_waits_is_told_once_with_how_busy_its_processes_were(
    make: Maker, processes: int, who: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "detaug")
    augmenter = make(Pids(), slow, processes, **OPTIONS)
    list(augmenter)
    said = [record for record in caplog.records if "the loop waited" in record.getMessage()]
    assert [record.levelno for record in said] == [logging.WARNING]
    text = said[0].getMessage()
    assert text.startswith("epoch 0: the loop waited for data")
    assert f"made by {who}, busy" in text
    list(augmenter)
    again = [
        record for record in caplog.records if "epoch 1: the loop waited" in record.getMessage()
    ]
    assert [record.levelno for record in again] == [logging.INFO]

    assert augmenter.stats()["waited"] > 0.1


def test_processes_that_were_replaced_are_counted(make: Maker) -> None:
    augmenter = make(Pids(), slow, 2, **OPTIONS)
    os.kill(next(augmenter)["pid"], signal.SIGKILL)
    list(augmenter)
    assert augmenter.stats()["restarts"] == 1

    retiring = make(Pids(), slow, 1, executor=LocalProcesses(max_worker_memory=1), **OPTIONS)
    for _ in range(3):
        next(retiring)
    assert retiring.stats()["retirements"] >= 2
    assert retiring.stats()["restarts"] == 0
