"""The helper is killed: the same bytes or a clear error, never workers of another kind that know less of the program."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import psutil
import pytest

from detaug import DeterministicAugmenter, fingerprint
from tests.processes.engine import settings_pipelines
from tests.support.processes import wait_until

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="spares need pidfds"),
]

#: What a script sets at run time; the module as imported has another value.
FACTOR = 1.0


class Scaled:
    """Its batches depend on a global of this module; endless, keeps nothing."""

    def __iter__(self) -> Scaled:
        return self

    def __next__(self) -> dict[str, Any]:
        return {"data": np.random.random(100) * FACTOR}


def prints(augmenter: DeterministicAugmenter, n: int) -> list[str]:
    return [fingerprint(next(augmenter)) for _ in range(n)]


@pytest.fixture
def expected(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(sys.modules[__name__], "FACTOR", 7.5)
    with DeterministicAugmenter(Scaled(), None, 0, seed=3) as alone:
        return prints(alone, 80)


@pytest.fixture
def augmenter() -> Iterator[DeterministicAugmenter]:
    with DeterministicAugmenter(Scaled(), None, 2, seed=3, start_method="fork", max_restarts=1000) as made:
        yield made


def helper_of(augmenter: DeterministicAugmenter) -> Any:
    helper = augmenter._engine._pool._helpers.current  # type: ignore[union-attr]
    assert helper is not None
    return helper


def helpers_of(augmenter: DeterministicAugmenter) -> list[int]:
    """The helper and its spares, wherever they are in the tree of processes."""
    helpers = augmenter._engine._pool._helpers  # type: ignore[union-attr]
    return [each.pid for each in [helpers.current, *helpers.spares] if each is not None]


def kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def test_spares_are_there_before_the_first_batch(augmenter: DeterministicAugmenter) -> None:
    augmenter._start()
    pids = helpers_of(augmenter)
    assert len(pids) == 3
    assert all(psutil.pid_exists(pid) for pid in pids)


def test_helper_may_be_killed_before_the_first_batch(augmenter: DeterministicAugmenter, expected: list[str]) -> None:
    augmenter._start()
    kill(helper_of(augmenter).pid)
    assert prints(augmenter, 20) == expected[:20]


@pytest.mark.parametrize("early", [True, False])
def test_all_children_may_be_killed_at_once_again_and_again(
    augmenter: DeterministicAugmenter, expected: list[str], early: bool
) -> None:
    augmenter._start()
    batches = [] if early else prints(augmenter, 5)
    for _ in range(3):
        for child in psutil.Process().children(recursive=True):
            child.kill()
        batches += prints(augmenter, 20)
    assert batches == expected[: len(batches)]


def test_helper_may_be_killed_in_a_row(augmenter: DeterministicAugmenter, expected: list[str]) -> None:
    batches = prints(augmenter, 5)
    for _ in range(6):
        before = helpers_of(augmenter)
        kill(before[0])
        wait_until(lambda before=before: len(set(helpers_of(augmenter)) - {0, before[0]}) == 3, "there are new spares")  # type: ignore[misc]
        batches += prints(augmenter, 8)
    assert batches == expected[: len(batches)]


@pytest.mark.parametrize("start", ["early", "later"])
def test_death_of_helper_and_all_spares_is_a_clear_error_and_restart_goes_on(
    augmenter: DeterministicAugmenter, expected: list[str], start: str
) -> None:
    augmenter._start()
    batches = [] if start == "early" else prints(augmenter, 5)
    pool = augmenter._engine._pool  # type: ignore[union-attr]
    for pid in helpers_of(augmenter):  # stopped first, so that none can make another meanwhile
        os.kill(pid, signal.SIGSTOP)
    for pid in helpers_of(augmenter):
        kill(pid)
    wait_until(lambda: pool._failed, "the loss is noticed")
    error = ""
    while not error:
        try:
            batches += prints(augmenter, 1)  # what was ready is still given
        except RuntimeError as raised:
            error = str(raised)
    assert "killed at the same time" in error
    assert "restart()" in error
    assert batches == expected[: len(batches)]
    state = augmenter.state_dict()
    assert state["step"] == len(batches)
    augmenter.restart()
    augmenter.load_state_dict(state)
    batches += prints(augmenter, 10)
    assert batches == expected[: len(batches)]


def test_replaced_helper_forks_what_the_program_was_at_the_start(
    augmenter: DeterministicAugmenter, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = prints(augmenter, 5)
    monkeypatch.setattr(sys.modules[__name__], "FACTOR", 100.0)
    for _ in range(2):
        for child in psutil.Process().children(recursive=True):
            child.kill()
        batches += prints(augmenter, 10)
    assert batches == expected[: len(batches)]


def test_fresh_interpreters_are_given_the_environment_of_the_start(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("ITS_OWN", "at the start")
    transform = settings_pipelines.Shows(settings_pipelines.own_variable)
    with DeterministicAugmenter(
        settings_pipelines.Counter(), transform, 1, seed=1, start_method="spawn", stateless=True
    ) as augmenter:
        seen = [next(augmenter)["seen"]]
        monkeypatch.setenv("ITS_OWN", "later")
        with caplog.at_level(logging.ERROR):
            for pid in helpers_of(augmenter):
                kill(pid)
            seen += [next(augmenter)["seen"] for _ in range(6)]
    assert seen == ["at the start"] * 7


def ignore() -> Any:
    return signal.SIG_IGN


def reap_everything() -> Any:
    def reap(number: int, frame: Any) -> None:
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass

    return reap


@pytest.mark.parametrize("handler", [ignore, reap_everything])
def test_dead_worker_is_noticed_at_once_whatever_the_program_does_about_children(
    handler: Callable[[], Any], expected: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    before = signal.signal(signal.SIGCHLD, handler())
    try:
        with DeterministicAugmenter(Scaled(), None, 1, seed=3, start_method="fork") as augmenter:
            batches = prints(augmenter, 2)
            for _ in range(3):
                (pid,) = augmenter._engine.worker_pids()  # type: ignore[union-attr]
                kill(pid)
                batches += prints(augmenter, 6)
            assert batches == expected[: len(batches)]
            pids = helpers_of(augmenter)
        said = [record.getMessage() for record in caplog.records]
        assert sum("SIGKILL" in text for text in said) == 3, "the helper has told how they ended"
        wait_until(lambda: not any(psutil.pid_exists(pid) for pid in pids), "the helpers are gone and reaped")
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_another_augmenters_channels_are_not_kept_open_by_a_later_one() -> None:
    with (
        DeterministicAugmenter(Scaled(), None, 1, seed=3, start_method="fork") as first,
        DeterministicAugmenter(Scaled(), None, 1, seed=4, start_method="fork") as second,
    ):
        next(first)
        pool = first._engine._pool  # type: ignore[union-attr]
        channels = [*(worker.channel for worker in pool.workers.values()), pool._helpers.current.control]
        watched = [channel.fileno() for channel in channels]
        ours = {os.readlink(f"/proc/self/fd/{number}") for number in watched}
        next(second)
        for pid in [*helpers_of(second), *second._engine.worker_pids()]:  # type: ignore[union-attr]
            theirs = {entry.path for entry in psutil.Process(pid).open_files()} | {
                os.readlink(f"/proc/{pid}/fd/{number}") for number in os.listdir(f"/proc/{pid}/fd")
            }
            assert not ours & theirs
        pids = [*first._engine.worker_pids(), *helpers_of(first)]  # type: ignore[union-attr]
        first.close()
        wait_until(lambda: not any(psutil.pid_exists(pid) for pid in pids), "the first one's processes are gone")
        assert prints(second, 3)


def test_closing_just_after_the_helper_was_replaced_leaves_no_zombie() -> None:
    """New spares have been asked for and have yet to say that they are there."""
    before = {child.pid for child in psutil.Process().children()}
    for _ in range(8):
        with DeterministicAugmenter(Scaled(), None, 1, seed=3, start_method="fork", check_every=0) as augmenter:
            augmenter._start()
            killed = helper_of(augmenter).pid
            helpers = augmenter._engine._pool._helpers  # type: ignore[union-attr]
            kill(killed)
            wait_until(lambda: helpers.current is not None and helpers.current.pid != killed, "it is replaced")  # noqa: B023
    assert {child.pid for child in psutil.Process().children()} <= before
