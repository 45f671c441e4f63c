"""What is counted of a run, and what is advised."""

from __future__ import annotations

import pytest

from detaug.engine import health
from detaug.engine.health import Epoch, Health


def test_waiting_counts_once_the_first_batch_was_made_and_starting_does_not() -> None:
    counted = Health()
    counted.has_waited(5.0, counted.makes)
    counted.has_worked(0.5)
    counted.has_waited(0.25, counted.makes)
    counted.has_worked(0.5)
    assert (counted.starting, counted.as_dict(0)["waited"], counted.worked) == (5.0, 0.25, 1.0)


def test_an_epoch_is_what_was_seen_of_it() -> None:
    counted = Health()
    assert counted.epoch_ends(3) is None, "it was not seen to begin"
    counted.epoch_begins(7)
    counted.has_waited(0.5, makes=True)
    epoch = counted.epoch_ends(10)
    assert epoch is not None
    assert (epoch.batches, epoch.waited) == (3, 0.5)
    counted.epoch_begins(0)
    assert counted.epoch_ends(0) is None, "nothing was taken"
    assert counted.as_dict(0)["batches"] == 3


@pytest.mark.parametrize(
    ("epoch", "slow"),
    [
        (Epoch(100, 100.0, 5.1, 0), True),
        (Epoch(100, 100.0, 4.9, 0), False),
        (Epoch(9, 100.0, 50.0, 0), False),
        (Epoch(100, 9.0, 8.0, 0), False),
    ],
)
def test_more_than_a_twentieth_of_a_long_epoch_is_told(epoch: Epoch, slow: bool) -> None:
    assert epoch.is_slow is slow


@pytest.mark.parametrize(
    ("worked", "processes", "streams", "advice"),
    [
        (0, 0, None, "num_processes=3 makes them beside it"),
        (100, 2, None, "more of them help (this machine has 4 cores)"),
        (196, 4, None, "a pipeline that costs less helps"),
        (60, 2, None, "worked 60 % of the time, so the cost of batches varies: a larger window helps (num_cached=6)"),
        (50, 2, 1, "has 1 streams"),
    ],
)
def test_advice_follows_from_how_busy_the_processes_were(
    worked: float, processes: int, streams: int | None, advice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health.cores, "usable", lambda: 4)
    assert advice in Epoch(100, 50.0, 25.0, worked).what_helps(processes, streams, 3)
