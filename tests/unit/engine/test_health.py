"""Which workers count as stalled, and for which epochs the log says that the loop waited."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest

from detaug.engine import wait_stats as health
from detaug.engine.local import stall_watch
from detaug.engine.local.handles import Worker
from detaug.engine.local.stall_watch import StallWatch
from detaug.engine.wait_stats import RunStats


class Clock:
    """A clock that a test sets, in place of the module `time`."""

    def __init__(self, now: float) -> None:
        self.now = now

    def monotonic(self) -> float:
        return self.now

    perf_counter = monotonic


def described(*_: Any) -> str:
    return "a batch"


def four() -> int:
    return 4


@pytest.mark.parametrize(
    ("times_of_checks", "killed"),
    [
        ([1, 2, 3, 4], False),
        ([1, 2, 3, 4, 5, 5.5], True),
        ([1, 1.3, 901.3], False),
        ([901, 902, 903], False),
        ([901, 902, 903, 904, 905, 906, 906.5], True),
    ],
)
def test_time_in_which_the_whole_program_was_stopped_is_no_stall(
    times_of_checks: list[float], killed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(0.0)
    monkeypatch.setattr(stall_watch, "time", clock)
    monkeypatch.setattr(stall_watch, "describe_batch", described)
    pool: Any = Mock()
    watch = StallWatch(5.0, Mock(), kill=pool.kill, abandon=pool.abandon)
    worker = Worker(1, 0, Mock(), Mock(), ready=True, task_started_at=0.0)
    worker.tasks.append(Mock())
    for clock.now in times_of_checks:
        watch.check([worker])
    assert bool(pool.kill.mock_calls) == killed


def test_a_killed_worker_is_not_abandoned_for_the_time_in_which_the_program_was_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock(1.0)
    monkeypatch.setattr(stall_watch, "time", clock)
    pool: Any = Mock()
    watch = StallWatch(None, Mock(), kill=pool.kill, abandon=pool.abandon)
    worker = Worker(1, 0, Mock(), Mock(), disconnected_at=1.0, killed_at=1.0)
    for clock.now in [2.0, 902.0, 903.0]:
        watch.check([worker])
    assert not pool.abandon.mock_calls
    clock.now = 905.0
    watch.check([worker])
    pool.abandon.assert_called_once_with(worker)


@pytest.mark.parametrize(
    ("num_batches", "seconds", "waited", "is_logged"),
    [
        (100, 100.0, 5.1, True),
        (100, 100.0, 4.9, False),
        (9, 100.0, 50.0, False),
        (100, 9.0, 8.0, False),
    ],
)
def test_more_than_a_twentieth_of_a_long_epoch_is_told(
    num_batches: int,
    seconds: float,
    waited: float,
    is_logged: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = Clock(50.0)
    monkeypatch.setattr(health, "time", clock)
    monkeypatch.setattr(health, "usable_cores", four)
    stats = RunStats()
    # The wait for the first batch does not count, as the engine starts in it.
    stats.on_batch(40.0)
    waited_for_each = waited / (num_batches - 1)
    for _ in range(num_batches - 1):
        stats.on_batch(clock.now - waited_for_each)
    stats.work_seconds = 1.2 * seconds
    clock.now = 50.0 + seconds
    stats.on_epoch_end(3, num_processes=2)
    workers = "made by 2 workers, busy 60 % of the time, on a machine with 4 cores"
    assert ("epoch 3: the loop waited for data" in caplog.text) == is_logged
    assert (workers in caplog.text) == is_logged
