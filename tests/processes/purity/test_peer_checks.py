"""The first check of a run is made by a worker, so that no process is started for it."""

from __future__ import annotations

import logging
import os
import signal
from pathlib import Path

import numpy as np
import pytest
import torch

from detaug import Check, DeterministicAugmenter, LocalProcesses, ReproducibilityError, fingerprint
from detaug.engine.recheck import rechecker
from tests.support.faults import once

BATCHES = 12


class Items:
    """A map-style data set."""

    def __len__(self):
        return 2 * BATCHES

    def __getitem__(self, index):
        return {"x": np.full(3, float(index)), "noise": np.random.random()}


class NotesItsProcess:
    """Writes an empty file for each process that makes a batch, named by the process's number."""

    def __init__(self, folder):
        self.folder = folder

    def __call__(self, **batch):
        Path(self.folder, str(os.getpid())).touch()
        return batch


class EndsThePeer:
    """Ends the process that makes a batch again, once."""

    def __init__(self, folder):
        self.folder = folder

    def __call__(self, **batch):
        number = int(batch["x"][0][0])
        made = Path(self.folder, f"made {number}")
        if made.exists() and once(str(Path(self.folder, "ended"))):
            os.kill(os.getpid(), signal.SIGKILL)
        made.touch()
        return batch


class LeavesADefault:
    """Adds a tensor of torch's default dtype, and changes that dtype."""

    def __call__(self, **batch):
        ones = torch.ones(2)
        torch.set_default_dtype(torch.float64)
        return {**batch, "ones": ones}


class CountsInItsClass:
    calls = 0

    def __call__(self, **batch):
        CountsInItsClass.calls += 1
        return {**batch, "x": batch["x"] + CountsInItsClass.calls}


def augmenter_of(transform, num_processes=2, **options):
    """Return an augmenter with batches that any worker may make."""
    arguments = {"transform": transform, "num_processes": num_processes, "seed": 1, **options}
    return DeterministicAugmenter.from_dataset(Items(), 2, **arguments)


@pytest.mark.parametrize(
    ("num_processes", "makers"),
    [pytest.param(1, 2, id="one worker and a checker"), pytest.param(2, 2, id="two workers")],
)
def test_two_workers_need_no_further_process(num_processes, makers, tmp_path, monkeypatch):
    # On a busy machine the second worker comes late.
    monkeypatch.setattr(rechecker, "PEER_PATIENCE", 60.0)
    with augmenter_of(NotesItsProcess(tmp_path), num_processes) as augmenter:
        for _ in augmenter:
            pass
        assert augmenter.stats()["checked"] >= 1
    assert len(list(tmp_path.iterdir())) == makers


@pytest.mark.parametrize("start_method", ["fork", "forkserver"])
def test_what_a_peer_finds_is_examined_and_told(start_method):
    executor = LocalProcesses(start_method)
    with (
        pytest.raises(ReproducibilityError, match=r"CountsInItsClass\.calls"),
        augmenter_of(CountsInItsClass(), executor=executor) as augmenter,
    ):
        for _ in augmenter:
            pass


def test_a_peer_may_end_while_it_checks(tmp_path, caplog):
    with augmenter_of(None) as augmenter:
        expected = [fingerprint(batch) for batch in augmenter]
    transform = EndsThePeer(tmp_path)
    with (
        caplog.at_level(logging.CRITICAL, "detaug"),
        augmenter_of(transform) as augmenter,
    ):
        assert [fingerprint(batch) for batch in augmenter] == expected
        stats = augmenter.stats()
    assert (tmp_path / "ended").exists()
    assert stats["restarts"] == 1
    assert stats["checked"] >= 1


@pytest.mark.parametrize("num_processes", [1, 2])
def test_a_setting_that_a_check_leaves_is_put_back(num_processes, caplog):
    with (
        caplog.at_level(logging.CRITICAL, "detaug"),
        augmenter_of(LeavesADefault(), num_processes) as augmenter,
    ):
        dtypes = {batch["ones"].dtype for batch in augmenter}
        assert augmenter.stats()["checked"] >= 1
    assert dtypes == {torch.float32}


class ChangesItsCache(Items):
    """Keeps its items, and changes what it keeps each time it gives one."""

    def __init__(self):
        self.cache = {}

    def __getitem__(self, index):
        values = self.cache.setdefault(index, np.full(3, float(index + 1)))
        values *= 1.1
        return {"x": values}


class KeepsDraws(Items):
    """Draws a number for each item once per process."""

    numbers = {}  # noqa: RUF012

    def __getitem__(self, index):
        return {"x": self.numbers.setdefault(index, np.random.random())}


@pytest.mark.parametrize("kind", [ChangesItsCache, KeepsDraws])
def test_a_cache_that_shows_when_a_case_comes_again_is_told_in_a_short_run(
    kind, caplog, monkeypatch
):
    monkeypatch.setattr(rechecker, "PEER_PATIENCE", 60.0)
    check = Check(on_mismatch="warn")
    with (
        caplog.at_level(logging.WARNING, "detaug"),
        DeterministicAugmenter.from_dataset(
            kind(), 2, num_processes=2, seed=1, check=check
        ) as augmenter,
    ):
        for _ in range(15):
            for _ in augmenter:
                pass
    assert "made again by another worker" in caplog.text
