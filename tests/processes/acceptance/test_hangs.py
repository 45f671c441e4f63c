"""A worker that hangs or is stopped holds nobody up."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from detaug import LocalProcesses
from tests.support.augmenters import Maker
from tests.support.comparing import prints, take
from tests.support.faults import HangsOnce
from tests.support.loaders import RandomSampler
from tests.support.witness import WITNESS, assert_made_by_workers

pytestmark = pytest.mark.timeout(60)


def test_batch_of_a_hung_worker_is_made_elsewhere(make: Maker, mark: str, tmp_path: Path) -> None:
    expected = prints(take(make(RandomSampler(), None, 0, seed=2), 12))
    flag = tmp_path / "hung"
    augmenter = make(HangsOnce(4, str(flag)), None, 2, seed=2, executor=LocalProcesses(stall_timeout=1.0))
    batches = take(augmenter, 12)
    assert flag.exists()
    assert_made_by_workers("fork", batches)
    assert prints(batches) == expected


def test_close_does_not_wait_for_a_stopped_worker(make: Maker, mark: str) -> None:
    augmenter = make(RandomSampler(), None, 2, seed=2)
    batches = take(augmenter, 6)
    stopped = batches[-1][WITNESS]["pid"]
    os.kill(stopped, signal.SIGSTOP)
    augmenter.close()
    with pytest.raises(ProcessLookupError):
        os.kill(stopped, 0)
