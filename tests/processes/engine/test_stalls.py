"""A worker that hangs is named with its batch, and what the kernel says of it; one that hangs for too long is replaced."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from detaug import LocalProcesses
from detaug.engine.local import handles
from tests.processes.engine.misbehaving import Sleepy
from tests.support.augmenters import Maker
from tests.support.comparing import prints, take
from tests.support.loaders import RandomLoader, RandomSampler
from tests.support.witness import WITNESS

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def half_a_second_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handles, "SLOW_SECONDS", 0.5)


def test_without_a_timeout_a_warning_names_batch_worker_and_time(
    make: Maker, mark: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, half_a_second_is_slow: None
) -> None:
    transform = Sleepy(4, str(tmp_path / "slept"), seconds=2.5)
    expected = prints(take(make(RandomLoader(), None, 0, seed=2), 8))
    batches = take(make(RandomLoader(), transform, 1, seed=2), 8)
    assert prints(batches) == expected
    warnings = [r.getMessage() for r in caplog.records if "has been making" in r.getMessage()]
    assert warnings
    pid = batches[0][WITNESS]["pid"]
    for words in (f"(pid {pid})", "epoch 0, step 4", f"py-spy dump --pid {pid} shows where it is"):
        assert words in warnings[0]
    assert f"for {0.5:.0f} s" in warnings[0] or "for 1 s" in warnings[0] or "for 2 s" in warnings[0]


def test_stopped_worker_is_said_to_be_stopped(make: Maker, caplog: pytest.LogCaptureFixture) -> None:
    expected = prints(take(make(RandomSampler(), None, 0, seed=2), 30))
    augmenter = make(RandomSampler(), None, 2, seed=2, executor=LocalProcesses(stall_timeout=0.5))
    batches = take(augmenter, 4)
    os.kill(batches[-1][WITNESS]["pid"], signal.SIGSTOP)
    batches += take(augmenter, 26)
    assert prints(batches) == expected
    assert "it made no progress for 0.5 s; it is stopped (SIGSTOP" in caplog.text
