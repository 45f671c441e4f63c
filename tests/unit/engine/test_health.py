"""Which epochs are told of, and what is advised."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from detaug.engine import health
from detaug.engine.health import Health, what_helps


@pytest.mark.parametrize(
    ("batches", "seconds", "waited", "told"),
    [(100, 100.0, 5.1, True), (100, 100.0, 4.9, False), (9, 100.0, 50.0, False), (100, 9.0, 8.0, False)],
)
def test_more_than_a_twentieth_of_a_long_epoch_is_told(
    batches: int,
    seconds: float,
    waited: float,
    told: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = iter([50.0, 50.0 + seconds])
    monkeypatch.setattr(health, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    kept = Health(waited=3.0)
    kept.epoch_begins(taken=5)
    kept.epoch_begins(taken=7, anew=False)
    kept.waited += waited
    kept.epoch_ends(0, 5 + batches, num_processes=2)
    assert ("the loop waited for data" in caplog.text) == told


@pytest.mark.parametrize(
    ("busy", "processes", "advice"),
    [
        (0, 0, "num_processes=3 makes them beside it"),
        (0.98, 2, "a pipeline that costs less helps, or more of them (this machine has 4 cores)"),
        (0.6, 2, "worked 60 % of the time, so the cost of batches varies: a larger window helps (num_cached=)"),
    ],
)
def test_advice_follows_from_how_busy_the_processes_were(
    busy: float, processes: int, advice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health.cores, "usable", lambda: 4)
    assert advice in what_helps(processes, busy)
