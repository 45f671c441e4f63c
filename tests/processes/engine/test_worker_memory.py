"""A worker whose memory grows retires between two batches, and the bytes do not change."""

from __future__ import annotations

import logging

import pytest

from detaug import LocalProcesses
from detaug.memory.limits import private_memory
from tests.processes.engine.misbehaving import CountsAndLeaks
from tests.support.augmenters import Maker
from tests.support.comparing import prints, take
from tests.support.witness import WITNESS, assert_made_by_workers

pytestmark = pytest.mark.timeout(90)

MIB = 2**20


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_leaking_workers_are_replaced_and_bytes_stay(
    make: Maker, mark: str, caplog: pytest.LogCaptureFixture, method: str
) -> None:
    caplog.set_level(logging.INFO)
    options = {"seed": 5, "num_streams": 3, "stateless": False}
    expected = take(make(CountsAndLeaks(), None, 0, **options), 20)
    limit = private_memory() + 600 * MIB if method == "fork" else 900 * MIB
    executor = LocalProcesses(start_method=method, max_worker_memory=limit)
    batches = take(make(CountsAndLeaks(), None, 1, executor=executor, **options), 20)
    assert_made_by_workers(method, batches)
    assert prints(batches) == prints(expected)
    assert [batch["count"] for batch in batches] == [step // 3 + 1 for step in range(20)]
    assert len({batch[WITNESS]["pid"] for batch in batches}) >= 2, "a batch keeps 40 MB"
    assert "max_worker_memory is" in caplog.text
    assert "ended with" not in caplog.text, "to retire is not to die"
