"""A worker that is killed, hangs or is stopped costs nothing but time. Kills at random moments are
in tests/stress.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from detaug import LocalProcesses
from tests.support import witness
from tests.support.augmenters import Maker
from tests.support.comparing import fingerprints_of, take
from tests.support.faults import DiesInPickling
from tests.support.loaders import RandomLoader, RandomSampler, Walker
from tests.support.processes import own_processes
from tests.support.witness import WITNESS, assert_made_by_workers

pytestmark = pytest.mark.timeout(120)


def test_worker_that_dies_while_it_hands_its_batch_over_is_replaced(
    make: Maker, mark: str, tmp_path: Path
) -> None:
    expected = fingerprints_of(take(make(RandomLoader(), None, 0, seed=4), 10))
    flag = tmp_path / "died"
    batches = take(make(DiesInPickling(4, str(flag)), None, 2, seed=4), 10)
    assert flag.exists()
    assert batches[4].pop("lethal").flag == str(flag)
    assert fingerprints_of(batches) == expected


def victims_below(augmenter: Any, start_method: str) -> list[int]:
    """All processes; not the helper of "fork", without which workers as they were at the start can
    no longer be made.
    """
    helper = augmenter._engine._pool.helper.pid
    return [each.pid for each in own_processes() if start_method != "fork" or each.pid != helper]


@pytest.mark.parametrize(
    ("start_method", "loader"),
    [
        ("fork", RandomSampler),
        ("fork", Walker),
        # Its streams are rebuilt, in several interpreters one after the other.
        ("spawn", Walker),
        pytest.param("spawn", RandomSampler, marks=pytest.mark.slow),
        ("forkserver", Walker),
        ("forkserver", RandomSampler),
    ],
)
def test_every_process_below_the_augmenter_may_be_killed_in_turn(
    make: Maker, mark: str, start_method: str, loader: type
) -> None:
    expected = fingerprints_of(take(make(loader(), None, 0, seed=6, num_streams=4), 40))
    number = 2 if start_method == "fork" else 1  # a fresh interpreter takes seconds
    executor = LocalProcesses(start_method=start_method)
    augmenter = make(loader(), None, number, seed=6, num_streams=4, executor=executor)
    batches = take(augmenter, 4)
    assert_made_by_workers(start_method, batches)
    victims = victims_below(augmenter, start_method)
    assert {batch[WITNESS]["pid"] for batch in batches} <= set(victims)
    killed = 0
    for pid in victims:
        try:
            os.kill(pid, signal.SIGKILL)
            killed += 1
        except ProcessLookupError:  # it went with a helper that was killed before it
            pass
        batches += take(augmenter, 4)
    assert killed >= 1
    batches += take(augmenter, 40 - len(batches))
    assert fingerprints_of(batches) == expected


def test_forked_replacement_knows_nothing_of_what_the_parent_did_later(
    make: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(witness, "MARK", "before the start")
    expected = fingerprints_of(take(make(RandomSampler(), None, 0, seed=6), 30))
    augmenter = make(RandomSampler(), None, 1, seed=6)
    batches = take(augmenter, 4)
    monkeypatch.setattr(witness, "MARK", "later")
    os.kill(batches[0][WITNESS]["pid"], signal.SIGKILL)
    batches += take(augmenter, 26)
    assert len({batch[WITNESS]["pid"] for batch in batches}) == 2
    assert {batch[WITNESS]["mark"] for batch in batches} == {"before the start"}
    assert fingerprints_of(batches) == expected


def test_close_does_not_wait_for_a_stopped_worker(make: Maker, mark: str) -> None:
    augmenter = make(RandomSampler(), None, 2, seed=2)
    batches = take(augmenter, 6)
    stopped = batches[-1][WITNESS]["pid"]
    os.kill(stopped, signal.SIGSTOP)
    augmenter.close()
    with pytest.raises(ProcessLookupError):
        os.kill(stopped, 0)
