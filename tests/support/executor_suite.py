"""The engine's contract (`detaug.engine.executor`), which every executor keeps.

A module imports the tests from here and has a fixture ``run``, which starts engines of its
executor.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from batchgenerators.dataloading.data_loader import DataLoader

from detaug import BatchError, DeterministicAugmenter, Skip, current, fingerprint
from detaug.engine.executor import Engine, Executor
from detaug.engine.in_process import InThisProcess
from detaug.engine.outcomes import Position
from tests.support.ledgers.runs import lines
from tests.support.waiting import run_in_threads


class Numbers(DataLoader):
    """Batches that say which they are, in large and small arrays, and one that fails."""

    def __init__(self, fails_at: int | None = None) -> None:
        super().__init__(None, 1, infinite=True)
        self.fails_at = fails_at

    def generate_train_batch(self) -> dict[str, Any]:
        now = current()
        if now.step == self.fails_at:
            raise LookupError("no such case")
        return {
            "at": (now.epoch, now.step),
            "data": np.random.default_rng(now.step).random((1, 1, 40, 40)),
            "pid": 0,
        }


class WhereMade(Numbers):
    """Says which process made a batch."""

    def generate_train_batch(self) -> dict[str, Any]:
        return {**super().generate_train_batch(), "pid": os.getpid()}


class Running:
    """An engine, and the augmenter that made its context."""

    def __init__(self, executor: Executor, **options: Any) -> None:
        loader = options.pop("loader", None) or Numbers(options.pop("fails_at", None))
        processes = options.pop("num_processes", 2)
        self.augmenter = DeterministicAugmenter(
            loader,
            None,
            0 if isinstance(executor, InThisProcess) else processes,
            seed=5,
            executor=executor,
            **{"batches_per_epoch": 4, **options},
        )
        self.open_gate: Callable[[], None] = lambda: None
        self.augmenter._start()
        assert self.augmenter._engine is not None
        self.engine: Engine = self.augmenter._engine

    def take(self, number: int) -> list[tuple[int, int]]:
        return [self.next()["at"] for _ in range(number)]

    def next(self) -> Any:
        batch = self.engine.wait()
        assert self.engine.hand_over() is batch
        return batch


@contextmanager
def running(make: Callable[[], Executor]) -> Iterator[Callable[..., Running]]:
    """What ``run`` yields."""
    started: list[Running] = []

    def start(**options: Any) -> Running:
        started.append(Running(make(), **options))
        return started[-1]

    yield start
    for running in started:
        running.augmenter.close()


class Shares(DataLoader):
    """Finite: three streams share its items out. A batch says which process made it."""

    def __init__(self) -> None:
        super().__init__(np.arange(201), 2, 3, 7, True, True, False)
        self.indices = list(range(201))

    def generate_train_batch(self) -> dict[str, Any]:
        return {"indices": np.array(self.get_indices()), "pid": os.getpid()}


class Gated:
    """Makes that loader. Only the first workers may do so; those behind them wait at a gate."""

    def __init__(self, folder: Path, num_free: int) -> None:
        self.folder = folder
        self.num_free = num_free
        self.program = os.getpid()

    def __call__(self) -> Shares:
        is_worker = os.getpid() != self.program
        if is_worker and self._ticket() >= self.num_free:
            while not (self.folder / "open").exists():
                time.sleep(0.01)
        return Shares()

    def _ticket(self) -> int:
        """Return how many processes came before this one."""
        for number in itertools.count():
            try:
                (self.folder / f"{number}").touch(exist_ok=False)
            except FileExistsError:
                continue
            return number
        raise AssertionError

    def open(self) -> None:
        (self.folder / "open").touch()


def shares(batches: Iterable[dict[str, Any]]) -> list[list[int]]:
    return [batch["indices"].tolist() for batch in batches]


def expected_shares(epoch: int) -> list[list[int]]:
    with DeterministicAugmenter(Shares(), None, 0, seed=5, check=False) as augmenter:
        augmenter.set_epoch(epoch)
        return shares(augmenter)


@pytest.fixture
def gated(run_two: Callable[..., Running], tmp_path: Path) -> Callable[[int], Running]:
    """Start an engine with two workers, of which only so many come before the gate is opened."""

    def start(num_free: int) -> Running:
        gate = Gated(tmp_path, num_free)
        running = run_two(loader=gate, batches_per_epoch=None, check=False)
        running.open_gate = gate.open
        return running

    return start


def test_streams_of_a_worker_that_does_not_come_are_made_by_another(
    gated: Callable[[int], Running],
) -> None:
    assert shares(gated(1).augmenter) == expected_shares(0)


def test_a_worker_that_comes_later_takes_streams_over(gated: Callable[[int], Running]) -> None:
    running = gated(1)
    augmenter = running.augmenter
    batches = [next(augmenter) for _ in range(5)]
    running.open_gate()
    num_makers = 2 if running.engine.prefetches else 1
    deadline = time.monotonic() + 100
    for epoch in itertools.count():
        batches += augmenter
        assert shares(batches) == expected_shares(epoch)
        if len({batch["pid"] for batch in batches}) == num_makers:
            return
        assert time.monotonic() < deadline, "the second worker has not made a batch"
        batches = []


def test_streams_of_a_lost_worker_are_made_by_another(gated: Callable[[int], Running]) -> None:
    running = gated(2)
    augmenter = running.augmenter
    deadline = time.monotonic() + 100
    for epoch in itertools.count():
        batches = [next(augmenter) for _ in range(50)]
        pids = {batch["pid"] for batch in batches}
        if len(pids) == 2 or not running.engine.prefetches:
            break
        assert time.monotonic() < deadline, "the second worker has not made a batch"
        augmenter.set_epoch(epoch + 1)
    for pid in pids - {os.getpid(), batches[-1]["pid"]}:
        # Whoever takes its place waits at the gate.
        os.kill(pid, signal.SIGKILL)
    batches += augmenter
    assert shares(batches) == expected_shares(epoch)


def test_batches_come_in_order_and_epochs_end(run: Callable[..., Running]) -> None:
    running = run()
    assert running.take(4) == [(0, step) for step in range(4)]
    with pytest.raises(StopIteration):
        running.next()
    assert running.take(2) == [(1, 0), (1, 1)]


def test_bytes_are_those_of_a_replay(run: Callable[..., Running]) -> None:
    running = run()
    for step in range(4):
        assert fingerprint(running.next()) == fingerprint(running.augmenter.replay(0, step))


def test_what_is_put_back_is_due_again(run: Callable[..., Running]) -> None:
    running = run()
    running.take(1)
    batch = running.engine.wait()
    running.engine.put_back()
    assert running.augmenter.step == 1
    assert fingerprint(running.next()) == fingerprint(batch)
    assert running.take(1) == [(0, 2)]


def test_a_move_goes_anywhere(run: Callable[..., Running]) -> None:
    running = run()
    running.take(3)
    for epoch, step in ((7, 2), (0, 1), (0, 1)):
        running.engine.move(Position(epoch, step, step))
        assert running.take(1) == [(epoch, step)]


def test_a_failure_is_raised_until_the_position_is_moved(run: Callable[..., Running]) -> None:
    running = run(fails_at=2)
    running.take(2)
    for _ in range(2):
        with pytest.raises(BatchError, match="no such case"):
            running.next()
    running.engine.move(running.augmenter._schedule.position)
    # Tried again.
    with pytest.raises(BatchError, match="no such case"):
        running.next()
    running.engine.move(Position(0, 3, 3))
    assert running.take(1) == [(0, 3)]


def test_failures_can_be_left_out(run: Callable[..., Running]) -> None:
    assert run(fails_at=1, on_error=Skip()).take(3) == [(0, 0), (0, 2), (0, 3)]


def test_other_ranks_steps_are_theirs(run: Callable[..., Running]) -> None:
    running = run(rank=1, world_size=2)
    assert running.take(2) == [(0, 1), (0, 3)]
    with pytest.raises(StopIteration):
        running.next()


class Draws(DataLoader):
    """Of global generators, with other threads given their turn in between."""

    def __init__(self) -> None:
        super().__init__(None, 1, infinite=True)

    def generate_train_batch(self) -> dict[str, Any]:
        drawn = []
        for _ in range(20):
            drawn.append((random.random(), np.random.random()))
            os.sched_yield()
            np.random.random((40, 40)) @ np.ones((40, 40))
        return {"at": (current().epoch, current().step), "data": np.array(drawn)}


def taken_by_threads(number: int, take: Callable[[], Any], most: int) -> list[Any]:
    """What `number` threads take that ask `most` times each, in the order in which they got it."""
    taken: list[Any] = []

    def ask() -> None:
        for _ in range(most):
            taken.append(take())

    run_in_threads([ask] * number, "a thread has asked for its batches")
    return taken


def test_several_threads_get_each_batch_once_and_right(run: Callable[..., Running]) -> None:
    running = run(loader=Draws(), batches_per_epoch=100, check=7)
    taken = taken_by_threads(5, lambda: next(running.augmenter), 6)
    assert sorted(batch["at"] for batch in taken) == [(0, step) for step in range(30)]
    for batch in taken[::5]:
        assert fingerprint(batch) == fingerprint(running.augmenter.replay(*batch["at"]))


def test_failures_reach_every_thread(run: Callable[..., Running]) -> None:
    running = run(fails_at=3, batches_per_epoch=100)
    running.take(3)

    def take() -> str:
        with pytest.raises(BatchError) as caught:
            running.next()
        return str(caught.value)

    told = taken_by_threads(4, take, 5)
    assert len(told) == 20
    assert all("no such case" in text for text in told)


def test_work_is_checked(run: Callable[..., Running]) -> None:
    running = run(check=1)
    running.take(4)
    with pytest.raises(StopIteration):
        running.next()
    assert running.augmenter.stats()["checked"] > 0
    assert running.augmenter.stats()["mismatches"] == 0


def test_closing_ends_what_was_started_and_may_be_repeated(run: Callable[..., Running]) -> None:
    running = run(loader=WhereMade(), check=False)
    batches = [running.next() for _ in range(4)]
    before = fingerprint(batches[0])
    pids = {batch["pid"] for batch in batches}
    assert (os.getpid() not in pids) is running.engine.prefetches
    running.engine.close()
    running.engine.close()
    for pid in pids - {os.getpid()}:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    assert fingerprint(batches[0]) == before, "what the user holds stays"


def test_a_ledger_has_every_batch_as_it_was_given(
    run: Callable[..., Running], tmp_path: Path
) -> None:
    running = run(ledger=tmp_path / "run.jsonl")
    aug = running.augmenter
    given = [next(aug) for _ in range(4)]
    with pytest.raises(StopIteration):
        next(aug)
    given.append(next(aug))
    running.engine.wait()
    running.engine.put_back()
    given.append(next(aug))
    aug.close()
    found = [line for line in lines(tmp_path / "run.jsonl") if line["kind"] == "batch"]
    assert [(line["epoch"], line["step"]) for line in found] == [
        (0, 0),
        (0, 1),
        (0, 2),
        (0, 3),
        (1, 0),
        (1, 1),
    ]
    for line, batch in zip(found, given, strict=True):
        assert line["keys"] == {key: fingerprint(value) for key, value in batch.items()}
        assert (line["worker"] == os.getpid()) is not running.engine.prefetches
