"""The engine's contract, kept in this process and by processes of this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from detaug import DeterministicAugmenter, LocalProcesses, fingerprint
from detaug.engine.executor import EngineContext, Executor
from detaug.engine.in_process import InThisProcess
from tests.support.executor_suite import *  # noqa: F403
from tests.support.executor_suite import Draws, Numbers, Running, running
from tests.support.waiting import run_in_threads

EXECUTORS: dict[str, Callable[[], Executor]] = {
    "in process": InThisProcess,
    "local processes": LocalProcesses,
}


@pytest.fixture(params=EXECUTORS)
def run(request: pytest.FixtureRequest) -> Iterator[Callable[..., Running]]:
    with running(EXECUTORS[request.param]) as start:
        yield start


@pytest.fixture
def run_two(run: Callable[..., Running]) -> Callable[..., Running]:
    return run


def test_an_executor_of_the_users_own_is_asked() -> None:
    asked: list[EngineContext] = []

    class Noting(InThisProcess):
        def start(self, context: EngineContext) -> Any:
            asked.append(context)
            return super().start(context)

    with DeterministicAugmenter(
        Numbers(), None, 0, seed=5, batches_per_epoch=4, executor=Noting()
    ) as augmenter:
        found = [batch["at"] for batch in augmenter]
    assert found == [(0, step) for step in range(4)]
    assert len(asked) == 1


def test_two_augmenters_of_two_threads_do_not_mix_their_global_generators() -> None:
    augmenters = [
        DeterministicAugmenter(Draws(), None, 0, seed=seed, batches_per_epoch=15) for seed in (5, 6)
    ]
    expected = [[fingerprint(each.replay(0, step)) for step in range(15)] for each in augmenters]
    found: list[list[str]] = [[], []]

    def take(number: int) -> None:
        found[number].extend(fingerprint(batch) for batch in augmenters[number])

    run_in_threads([partial(take, 0), partial(take, 1)], "a thread has its batches")
    assert found == expected
