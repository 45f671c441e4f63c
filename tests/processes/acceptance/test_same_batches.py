"""A batch is a function of pipeline, seed, epoch and step: nothing else changes a byte, and no
earlier batch leaves a trace.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from detaug import LocalProcesses
from detaug.engine.local import coordinator
from tests.support.augmenters import Maker
from tests.support.comparing import fingerprints_of, take
from tests.support.loaders import Noise, RandomSampler, Walker
from tests.support.witness import assert_made_by_workers

EPOCHS, BATCHES = 3, 8
OPTIONS: dict[str, Any] = {"seed": 20261, "num_streams": 5, "batches_per_epoch": BATCHES}


def all_epochs(augmenter: Any) -> list[Any]:
    return [batch for _ in range(EPOCHS) for batch in augmenter]


@pytest.fixture(scope="module")
def expected() -> Callable[[type], list[str]]:
    known: dict[type, list[str]] = {}

    def of(loader: type) -> list[str]:
        if loader not in known:
            maker = Maker()
            known[loader] = fingerprints_of(all_epochs(maker(loader(), Noise(), 0, **OPTIONS)))
            maker.close()
            assert len(set(known[loader])) == EPOCHS * BATCHES
        return known[loader]

    return of


@pytest.mark.parametrize("loader", [RandomSampler, Walker])
@pytest.mark.parametrize("n", [2, 5])  # fewer than the streams, and as many
def test_processes_start_method_and_delays_do_not_change_the_batches(
    make: Maker,
    mark: str,
    loader: type,
    n: int,
    start_method: str,
    tmp_path: Path,
    expected: Callable[[type], list[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # All workers meet, so none may have the streams of one whose interpreter starts slowly.
    monkeypatch.setattr(coordinator, "START_SECONDS", 60.0)
    slow = loader(delay=0.02, meeting=str(tmp_path), parties=n)
    # As batchgenerators takes them; without a GPU pin_memory changes nothing.
    arguments = (slow, Noise(delay=0.02), n, n, None, True, 0.002)
    batches = all_epochs(make(*arguments, executor=LocalProcesses(start_method), **OPTIONS))
    assert_made_by_workers(start_method, batches, at_least=n)
    assert fingerprints_of(batches) == expected(loader)


class Counts:
    """A transform whose output tells how often this object was called."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, **batch: Any) -> dict[str, Any]:
        self.calls += 1
        return {"calls": self.calls, "draw": batch["python"][0]}


@pytest.mark.parametrize("n", [0, 2])
def test_items_of_a_list_do_not_remember_what_was_done_to_them(make: Maker, n: int) -> None:
    augmenter = make([np.zeros(3), np.ones(3)], None, n, seed=1, num_streams=1)
    for _ in range(3):
        batches = list(augmenter)
        assert [batch.tolist() for batch in batches] == [[0, 0, 0], [1, 1, 1]]
        for batch in batches:
            batch += 5


def changed(loader: Walker, transform: Counts) -> tuple[Walker, Counts]:
    loader._position += 1000
    loader._turn = 50
    transform.calls = 50
    return loader, transform


@pytest.mark.parametrize("n", [0, 2])
def test_what_changes_after_the_start_reaches_no_batch(make: Maker, n: int) -> None:
    loader, transform = Walker(), Counts()
    expected = fingerprints_of(take(make(Walker(), Counts(), 0, seed=1), 10))
    augmenter = make(loader, transform, n, seed=1)
    augmenter._start()
    changed(loader, transform)
    assert fingerprints_of(take(augmenter, 10)) == expected


@pytest.mark.parametrize("n", [0, 2])
def test_what_changes_before_the_first_batch_counts(make: Maker, n: int) -> None:
    loader, transform = Walker(), Counts()
    expected = fingerprints_of(take(make(*changed(Walker(), Counts()), 0, seed=1), 10))
    augmenter = make(loader, transform, n, seed=1)
    changed(loader, transform)
    assert fingerprints_of(take(augmenter, 10)) == expected
