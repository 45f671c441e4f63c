"""The engine's contract, kept in this process and by processes of this machine."""

from __future__ import annotations

import itertools
import os
import resource
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from detaug import DeterministicAugmenter, LocalProcesses, fingerprint
from detaug.engine.executor import Executor, Work
from detaug.engine.in_process import InThisProcess
from detaug.engine.local import pool
from detaug.engine.local.coordinator import Coordinator
from tests.support.executor_suite import *  # noqa: F403
from tests.support.executor_suite import Draws, Finite, Numbers, Running, made_by, running
from tests.support.processes import wait_until

EXECUTORS: dict[str, Callable[[], Executor]] = {
    "in process": InThisProcess,
    "local processes": LocalProcesses,
}


@pytest.fixture(params=EXECUTORS)
def run(request: pytest.FixtureRequest) -> Iterator[Callable[..., Running]]:
    with running(EXECUTORS[request.param]) as start:
        yield start


def numbers_taken(pid: int, first: int) -> int:
    """The lowest number from that on at which the process has no descriptor open but those of its children."""
    taken = {
        int(each) for each in os.listdir(f"/proc/{pid}/fd") if "pidfd" not in os.readlink(f"/proc/{pid}/fd/{each}")
    }
    return next(number for number in itertools.count(first) if number not in taken)


@pytest.fixture(params=EXECUTORS)
def few(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., tuple[Running, Callable[[], None]]]]:
    """Two of the workers are killed, and the helper has no descriptors with which to start others."""
    monkeypatch.setattr(pool, "_START_PAUSE", 0.1)

    def start(**options: Any) -> tuple[Running, Callable[[], None]]:
        held = [
            os.open(os.devnull, os.O_RDONLY) for _ in range(20)
        ]  # also in the helper, which may open few numbers then
        short = run(**options)
        for number in held:
            os.close(number)
        engine = short.engine
        if not isinstance(engine, Coordinator):
            return short, lambda: None
        wait_until(lambda: len(engine.worker_pids(ready=True)) == 3, "three workers")
        assert engine._pool.helper is not None
        helper = engine._pool.helper.pid
        before = resource.prlimit(helper, resource.RLIMIT_NOFILE)
        resource.prlimit(helper, resource.RLIMIT_NOFILE, (numbers_taken(helper, 8), before[1]))
        for pid in engine.worker_pids()[:2]:
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: len(engine._missing) == 2, "two places are empty")
        assert len(engine.worker_pids()) == 1

        def let_one_join() -> None:
            resource.prlimit(helper, resource.RLIMIT_NOFILE, before)
            wait_until(lambda: len(engine.worker_pids(ready=True)) >= 2, "another one joins")

        return short, let_one_join

    three = {**EXECUTORS, "local processes": LocalProcesses}
    with running(three[request.param]) as run:
        yield start


class StartsLate(Finite):
    """In a second process it is not there before it may."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder, self.program = folder, os.getpid()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if os.getpid() == self.program:
            return
        with suppress(FileExistsError):
            (self.folder / "first").symlink_to(str(os.getpid()))
        while os.readlink(self.folder / "first") != str(os.getpid()) and not (self.folder / "go on").exists():
            time.sleep(0.05)


@pytest.mark.slow
def test_streams_of_a_worker_that_starts_for_long_go_to_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "_LATE_SECONDS", 0.5)
    options: dict[str, Any] = {"seed": 5, "check": False}
    with (
        DeterministicAugmenter(Finite(), None, 0, **options) as alone,
        DeterministicAugmenter(
            StartsLate(tmp_path), None, 2, executor=LocalProcesses(start_method="spawn"), **options
        ) as augmenter,
    ):
        assert len({*made_by(augmenter, alone)}) == 1
        (tmp_path / "go on").touch()
        wait_until(lambda: len(augmenter._engine.worker_pids(ready=True)) == 2, "the other one is there")  # type: ignore[union-attr]
        assert len({*made_by(augmenter, alone)}) == 2


def test_an_executor_of_the_users_own_is_asked() -> None:
    asked: list[Work] = []

    class Noting(InThisProcess):
        def start(self, work: Work) -> Any:
            asked.append(work)
            return super().start(work)

    with DeterministicAugmenter(Numbers(), None, 0, seed=5, batches_per_epoch=4, executor=Noting()) as augmenter:
        found = [batch["at"] for batch in augmenter]
    assert found == [(0, step) for step in range(4)]
    assert len(asked) == 1


def test_two_augmenters_of_two_threads_do_not_mix_their_global_generators() -> None:
    augmenters = [DeterministicAugmenter(Draws(), None, 0, seed=seed, batches_per_epoch=15) for seed in (5, 6)]
    expected = [[fingerprint(each.replay(0, step)) for step in range(15)] for each in augmenters]
    found: list[list[str]] = [[], []]

    def take(number: int) -> None:
        found[number].extend(fingerprint(batch) for batch in augmenters[number])

    threads = [threading.Thread(target=take, args=(number,)) for number in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == expected
