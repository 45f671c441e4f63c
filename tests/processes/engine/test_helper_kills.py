"""The helper is killed: a clear error or the same bytes, never workers of another kind that know
less of the program.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from typing import Any

import numpy as np
import psutil
import pytest

from detaug import DeterministicAugmenter, fingerprint
from detaug.engine.local import messages
from tests.support.augmenters import Maker
from tests.support.processes import wait_until, worker_pids

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="pidfds are needed"),
]

#: What a script sets at run time; the module as imported has another value.
FACTOR = 1.0


class Scaled:
    """Its batches depend on a global of this module; endless, keeps nothing."""

    def __iter__(self) -> Scaled:
        return self

    def __next__(self) -> dict[str, Any]:
        return {"data": np.random.random(100) * FACTOR}


def fingerprints_of(augmenter: DeterministicAugmenter, n: int) -> list[str]:
    return [fingerprint(next(augmenter)) for _ in range(n)]


@pytest.fixture
def expected(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(sys.modules[__name__], "FACTOR", 7.5)
    with DeterministicAugmenter(Scaled(), None, 0, seed=3) as alone:
        return fingerprints_of(alone, 80)


def helper_of(augmenter: DeterministicAugmenter) -> Any:
    helper = augmenter._engine._pool.helper  # type: ignore[union-attr]
    assert helper is not None
    return helper


def test_death_of_the_helper_of_forks_is_a_clear_error_and_restart_goes_on(
    make: Maker, expected: list[str]
) -> None:
    augmenter = make(Scaled(), None, 2, seed=3)
    batches = fingerprints_of(augmenter, 5)
    os.kill(helper_of(augmenter).pid, signal.SIGKILL)
    wait_until(lambda: augmenter._engine._fatal is not None, "the loss is noticed")  # type: ignore[union-attr]
    error = ""
    while not error:
        try:
            batches += fingerprints_of(augmenter, 1)  # what was ready is still given
        except RuntimeError as raised:
            error = str(raised)
    assert "the helper process, from which this augmenter's workers are forked, was killed" in error
    assert "restart()" in error
    assert batches == expected[: len(batches)]
    state = augmenter.state_dict()
    assert state["step"] == len(batches)
    augmenter.restart()
    augmenter.load_state_dict(state)
    batches += fingerprints_of(augmenter, 10)
    assert batches == expected[: len(batches)]


def test_dead_worker_is_noticed_at_once_though_the_program_ignores_its_children(
    expected: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        with DeterministicAugmenter(Scaled(), None, 1, seed=3, check=False) as augmenter:
            batches = fingerprints_of(augmenter, 2)
            for _ in range(3):
                (pid,) = worker_pids()
                os.kill(pid, signal.SIGKILL)
                batches += fingerprints_of(augmenter, 6)
            assert batches == expected[: len(batches)]
            pids = [helper_of(augmenter).pid]
        said = [record.getMessage() for record in caplog.records]
        assert sum("SIGKILL" in text for text in said) == 3, "the helper has told how they ended"
        wait_until(
            lambda: not any(psutil.pid_exists(pid) for pid in pids),
            "the helpers are gone and reaped",
        )
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_wishes_that_arrive_together_are_all_met() -> None:
    """As when a process that has died is to be killed, and another one started in its place."""
    with DeterministicAugmenter(Scaled(), None, 1, seed=3, check=False) as augmenter:
        next(augmenter)
        helper = helper_of(augmenter)
        os.kill(helper.pid, signal.SIGSTOP)
        wait_until(
            lambda: psutil.Process(helper.pid).status() == psutil.STATUS_STOPPED, "it is stopped"
        )
        helper.control.send(messages.Kill(99))
        channel = helper.start_worker(99)
        os.kill(helper.pid, signal.SIGCONT)
        with contextlib.closing(channel):
            arrived: list[Any] = []
            wait_until(
                lambda: bool(arrived.extend(channel.receive_ready(1)) or arrived), "it is ready", 20
            )
            assert isinstance(arrived[0][0], messages.Ready)
