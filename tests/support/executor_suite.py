"""Tests of the engine's contract (`detaug.engine.executor`), which every executor keeps.

A module imports these tests and defines a fixture ``run``, which starts engines of its executor
(see `running`), and ``run_two``, the same for engines with two workers.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from batchgenerators.dataloading.data_loader import DataLoader

from detaug import BatchError, DeterministicAugmenter, Skip, current, fingerprint
from detaug.engine.executor import Engine, Executor
from detaug.engine.in_process import InThisProcess
from detaug.engine.outcomes import Position
from tests.support.ledgers.runs import lines, steps
from tests.support.waiting import run_in_threads


class Numbers(DataLoader):
    """A loader of batches that hold their (epoch, step) and an array; one of them may fail."""

    def __init__(self, fails_at: int | None = None) -> None:
        super().__init__(None, 1, infinite=True)
        self.fails_at = fails_at

    def generate_train_batch(self) -> dict[str, Any]:
        context = current()
        if context.step == self.fails_at:
            raise LookupError("no such case")
        return {
            "at": (context.epoch, context.step),
            "data": np.random.default_rng(context.step).random((1, 1, 40, 40)),
            "pid": 0,
        }


class WhereMade(Numbers):
    """A loader whose batches hold the pid of the process that made them."""

    def generate_train_batch(self) -> dict[str, Any]:
        return {**super().generate_train_batch(), "pid": os.getpid()}


def _do_nothing() -> None:
    """Do nothing: most engines have no gate."""


class Running:
    """A running engine, with the augmenter that started it.

    Attributes:
        augmenter: to which the engine belongs. Its loader is a `Numbers` by default.
        engine: what is tested.
        open_gate: lets in the workers that wait; see `gated`.
    """

    def __init__(self, executor: Executor, **options: Any) -> None:
        loader = options.pop("loader", None) or Numbers(options.pop("fails_at", None))
        num_processes = options.pop("num_processes", 2)
        if isinstance(executor, InThisProcess):
            num_processes = 0
        options.setdefault("batches_per_epoch", 4)
        self.augmenter = DeterministicAugmenter(
            loader, None, num_processes, seed=5, executor=executor, **options
        )
        self.open_gate: Callable[[], None] = _do_nothing
        self.augmenter._start()
        assert self.augmenter._engine is not None
        self.engine: Engine = self.augmenter._engine

    def take(self, number: int) -> list[tuple[int, int]]:
        """Return the (epoch, step) of the next batches of a `Numbers`."""
        return [self.next()["at"] for _ in range(number)]

    def next(self) -> Any:
        """Return the next batch."""
        batch = self.engine.wait()
        assert self.engine.hand_over() is batch
        return batch


@contextmanager
def running(make: Callable[[], Executor]) -> Iterator[Callable[..., Running]]:
    """Yield what ``run`` yields: a function that starts engines, which are closed afterwards.

    Args:
        make: function that returns the executor of an engine.
    """
    all_running: list[Running] = []

    def start(**options: Any) -> Running:
        new_running = Running(make(), **options)
        all_running.append(new_running)
        return new_running

    yield start
    for started in all_running:
        started.augmenter.close()


class Shares(DataLoader):
    """A finite loader whose three streams split its items among themselves.

    Its batches hold the pid of the process that made them.
    """

    def __init__(self) -> None:
        super().__init__(
            np.arange(201),
            batch_size=2,
            num_threads_in_multithreaded=3,
            seed_for_shuffle=7,
            return_incomplete=True,
            shuffle=True,
            infinite=False,
        )
        self.indices = list(range(201))

    def generate_train_batch(self) -> dict[str, Any]:
        return {"indices": np.array(self.get_indices()), "pid": os.getpid()}


class Gated:
    """A factory of `Shares` that only the first workers pass; the others wait until it is opened.

    Args:
        folder: an empty one, shared by all processes.
        num_free: number of workers that do not wait.
    """

    def __init__(self, folder: Path, num_free: int) -> None:
        self.folder = folder
        self.num_free = num_free
        self.program_pid = os.getpid()

    def __call__(self) -> Shares:
        is_worker = os.getpid() != self.program_pid
        if is_worker and self._ticket() >= self.num_free:
            while not (self.folder / "open").exists():
                time.sleep(0.01)
        return Shares()

    def _ticket(self) -> int:
        """Return the number of workers that came before this one."""
        for number in itertools.count():
            try:
                (self.folder / f"{number}").touch(exist_ok=False)
            except FileExistsError:
                continue
            return number
        raise AssertionError

    def open(self) -> None:
        """Let all workers pass."""
        (self.folder / "open").touch()


def shares(batches: Iterable[dict[str, Any]]) -> list[list[int]]:
    """Return the indices in each batch of a `Shares`."""
    return [batch["indices"].tolist() for batch in batches]


def expected_shares(epoch: int) -> list[list[int]]:
    """Return the indices in each batch of an epoch of `Shares`, made without workers."""
    with DeterministicAugmenter(Shares(), None, 0, seed=5, check=False) as augmenter:
        augmenter.set_epoch(epoch)
        return shares(augmenter)


@pytest.fixture
def gated(run_two: Callable[..., Running], tmp_path: Path) -> Callable[[int], Running]:
    """Return a function that starts an engine with two workers.

    Its argument is the number of workers that start at once; the others wait at the gate.
    """

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
        # Its successor waits at the gate, so that the other worker must take over its streams.
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
    # A move to the same position makes the engine try again.
    running.engine.move(running.augmenter._schedule.position)
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
    """A loader that draws from the global generators and lets other threads run in between."""

    def __init__(self) -> None:
        super().__init__(None, 1, infinite=True)

    def generate_train_batch(self) -> dict[str, Any]:
        draws = []
        for _ in range(20):
            draws.append((random.random(), np.random.random()))
            os.sched_yield()
            # A product of matrices runs without the interpreter's lock.
            np.random.random((40, 40)) @ np.ones((40, 40))
        return {"at": (current().epoch, current().step), "data": np.array(draws)}


def taken_by_threads(num_threads: int, take: Callable[[], Any], num_calls: int) -> list[Any]:
    """Call `take` in several threads at once; return all results in the order of their arrival.

    Args:
        num_threads: number of threads.
        take: function that is called.
        num_calls: calls in each thread.
    """
    results: list[Any] = []

    def take_repeatedly() -> None:
        for _ in range(num_calls):
            results.append(take())

    run_in_threads([take_repeatedly] * num_threads, "a thread has asked for its batches")
    return results


def test_several_threads_get_each_batch_once_and_right(run: Callable[..., Running]) -> None:
    running = run(loader=Draws(), batches_per_epoch=100, check=7)
    batches = taken_by_threads(5, partial(next, running.augmenter), 6)
    assert sorted(batch["at"] for batch in batches) == [(0, step) for step in range(30)]
    for batch in batches[::5]:
        assert fingerprint(batch) == fingerprint(running.augmenter.replay(*batch["at"]))


def test_failures_reach_every_thread(run: Callable[..., Running]) -> None:
    running = run(fails_at=3, batches_per_epoch=100)
    running.take(3)

    def message_of_failure() -> str:
        with pytest.raises(BatchError) as caught:
            running.next()
        return str(caught.value)

    messages = taken_by_threads(4, message_of_failure, 5)
    assert len(messages) == 20
    assert all("no such case" in message for message in messages)


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
    fingerprint_before = fingerprint(batches[0])
    pids = {batch["pid"] for batch in batches}
    assert (os.getpid() not in pids) is running.engine.prefetches
    running.engine.close()
    running.engine.close()
    for pid in pids - {os.getpid()}:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    assert fingerprint(batches[0]) == fingerprint_before, "what the user holds stays"


def test_a_ledger_has_every_batch_as_it_was_given(
    run: Callable[..., Running], tmp_path: Path
) -> None:
    running = run(ledger=tmp_path / "run.jsonl")
    aug = running.augmenter
    batches = [next(aug) for _ in range(4)]
    with pytest.raises(StopIteration):
        next(aug)
    batches.append(next(aug))
    running.engine.wait()
    running.engine.put_back()
    batches.append(next(aug))
    aug.close()
    assert steps(tmp_path / "run.jsonl") == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1)]
    records = [line for line in lines(tmp_path / "run.jsonl") if line["kind"] == "batch"]
    for record, batch in zip(records, batches, strict=True):
        assert record["keys"] == {key: fingerprint(value) for key, value in batch.items()}
        assert (record["worker"] == os.getpid()) is not running.engine.prefetches
