"""A dead worker costs nothing but time."""

from __future__ import annotations

import os
import random
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from detaug import LocalProcesses
from tests.support import witness
from tests.support.augmenters import Maker
from tests.support.comparing import prints, take
from tests.support.faults import DiesInPickling, Gated
from tests.support.loaders import Noise, RandomLoader, RandomSampler, Walker
from tests.support.processes import descendants, wait_until
from tests.support.witness import WITNESS, assert_made_by_workers

pytestmark = pytest.mark.timeout(120)


def test_worker_that_dies_while_it_hands_its_batch_over_is_replaced(make: Maker, mark: str, tmp_path: Path) -> None:
    expected = prints(take(make(RandomLoader(), None, 0, seed=4), 10))
    flag = tmp_path / "died"
    batches = take(make(DiesInPickling(4, str(flag)), None, 2, seed=4), 10)
    assert flag.exists()
    assert batches[4].pop("lethal").flag == str(flag)
    assert prints(batches) == expected


def victims_below(augmenter: Any, start_method: str) -> list[int]:
    """All processes; not the helper of "fork", without which workers as they were at the start can no longer be made."""
    helper = augmenter._engine._pool.helper.pid
    return [each.pid for each in descendants() if start_method != "fork" or each.pid != helper]


@pytest.mark.parametrize(
    ("start_method", "loader"),
    [
        ("fork", RandomSampler),
        ("fork", Walker),
        ("spawn", RandomSampler),
        *(pytest.param(method, Walker, marks=pytest.mark.slow) for method in ("spawn", "forkserver")),
        ("forkserver", RandomSampler),
    ],
)
def test_every_process_below_the_augmenter_may_be_killed_in_turn(
    make: Maker, mark: str, start_method: str, loader: type
) -> None:
    expected = prints(take(make(loader(), None, 0, seed=6, num_streams=4), 40))
    augmenter = make(loader(), None, 2, seed=6, num_streams=4, executor=LocalProcesses(start_method=start_method))
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
    assert prints(batches) == expected


def test_all_processes_below_the_augmenter_may_be_killed_at_once(make: Maker, mark: str, start_method: str) -> None:
    expected = prints(take(make(RandomSampler(), None, 0, seed=6), 24))
    augmenter = make(RandomSampler(), None, 2, seed=6, executor=LocalProcesses(start_method=start_method))
    batches = take(augmenter, 4)
    assert_made_by_workers(start_method, batches)
    for pid in victims_below(augmenter, start_method):
        os.kill(pid, signal.SIGKILL)
    batches += take(augmenter, 20)
    assert prints(batches) == expected


def test_worker_killed_in_the_middle_of_a_batch_is_replaced(make: Maker, mark: str, tmp_path: Path) -> None:
    expected = prints(take(make(RandomSampler(), None, 0, seed=6), 12))
    augmenter = make(Gated(str(tmp_path), shut_from=4), None, 2, seed=6)
    batches = take(augmenter, 4)
    wait_until(lambda: bool(list(tmp_path.glob("begun-4-*"))), "step 4 is begun")
    (begun,) = tmp_path.glob("begun-4-*")
    os.kill(int(begun.name.split("-")[2]), signal.SIGKILL)
    (tmp_path / "gate").touch()
    batches += take(augmenter, 8)
    assert len(list(tmp_path.glob("begun-4-*"))) == 2, "step 4 was begun again, by another process"
    assert prints(batches) == expected


def test_forked_replacement_knows_nothing_of_what_the_parent_did_later(
    make: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(witness, "MARK", "before the start")
    expected = prints(take(make(RandomSampler(), None, 0, seed=6), 30))
    augmenter = make(RandomSampler(), None, 1, seed=6)
    batches = take(augmenter, 4)
    monkeypatch.setattr(witness, "MARK", "later")
    os.kill(batches[0][WITNESS]["pid"], signal.SIGKILL)
    batches += take(augmenter, 26)
    assert len({batch[WITNESS]["pid"] for batch in batches}) == 2
    assert {batch[WITNESS]["mark"] for batch in batches} == {"before the start"}
    assert prints(batches) == expected


def kill_at_random(
    augmenter: Any, stop: threading.Event, progress: threading.Event, chance: random.Random, kills: list[int]
) -> None:
    """Kill some worker at some moment after each batch that arrives, so that batches can still be made in between."""
    while not stop.is_set():
        if not progress.wait(0.1):
            continue
        if stop.wait(chance.uniform(0.0, 0.2)):
            return
        progress.clear()
        victims = victims_below(augmenter, "fork")
        if victims:
            victim = chance.choice(victims)
            try:
                os.kill(victim, signal.SIGKILL)
                kills.append(victim)
            except ProcessLookupError:
                continue


def run_under_random_kills(make: Maker, loader: type, n: int, **options: Any) -> None:
    expected = prints(take(make(loader(), Noise(), 0, **options), n))
    augmenter = make(loader(), Noise(delay=0.02), 3, executor=LocalProcesses(max_restarts=1000), **options)
    batches = take(augmenter, 1)
    stop, progress, kills = threading.Event(), threading.Event(), []
    killer = threading.Thread(target=kill_at_random, args=(augmenter, stop, progress, random.Random(n), kills))
    killer.start()
    try:
        for _ in range(n - 1):
            batches.append(next(augmenter))
            progress.set()
    finally:
        stop.set()
        killer.join()
    assert len(kills) >= 3, "too few processes were killed to say anything"
    assert prints(batches) == expected


@pytest.mark.parametrize("loader", [RandomSampler, Walker])
def test_kills_at_random_moments_do_not_change_the_stream(make: Maker, mark: str, loader: type) -> None:
    run_under_random_kills(make, loader, 120, seed=9, num_streams=6)
