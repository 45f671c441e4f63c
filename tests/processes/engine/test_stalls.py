"""A worker that hangs is named with its batch, and what the kernel says of it; one that hangs for too long is replaced."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from detaug import LocalProcesses
from detaug.engine.local import handles
from tests.processes.engine.misbehaving import Sleepy
from tests.support.augmenters import Maker
from tests.support.comparing import prints, take
from tests.support.loaders import RandomLoader, RandomSampler
from tests.support.processes import Script, wait_until
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


def test_time_in_which_the_whole_program_was_stopped_is_no_stall(script: Callable[..., Script]) -> None:
    run = script(
        """
        import logging
        logging.basicConfig(format="%(message)s")
        class Slow(Loader):
            def __next__(self):
                time.sleep(0.3)
                return super().__next__()
        with augmenter(Slow(), executor=LocalProcesses(START_METHOD, stall_timeout=1.5)) as aug:
            next(aug)
            print("ready")
            print(len([next(aug) for _ in range(8)]))
        """,
        "fork",
    )
    assert run.read_line() == "ready"
    os.killpg(run.pid, signal.SIGSTOP)  # as Ctrl-Z does
    wait_until(lambda: "T" in Path(f"/proc/{run.pid}/stat").read_text().rpartition(")")[2], "it is stopped")
    time.sleep(3)
    os.killpg(run.pid, signal.SIGCONT)
    run.finish()
    assert run.lines == ["ready", "8"]
    assert run.err == ""
