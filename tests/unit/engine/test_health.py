"""Which epochs are told of, and what is advised."""

from __future__ import annotations

import pytest

from detaug.engine import health
from detaug.engine.health import Epoch


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
