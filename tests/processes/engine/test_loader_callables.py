"""A callable that makes the loader is called by each process that makes batches: what it opens is opened there."""

from __future__ import annotations

import csv
import os
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from batchgenerators.dataloading.data_loader import DataLoader

from detaug import DeterministicAugmenter, current, fingerprint
from tests.support.augmenters import Maker, workers

LINES = 40
WAYS = [(0, "fork"), (1, "fork"), (3, "fork"), pytest.param(2, "spawn", marks=pytest.mark.slow)]


class Lines:
    """Walks through an open file."""

    def __init__(self, path: Path, seed_of_own: int | None = None) -> None:
        self.file = open(path)  # noqa: SIM115
        self.opened_by = os.getpid()
        self.rng = None if seed_of_own is None else random.Random(seed_of_own)
        self.path = path

    def __iter__(self) -> Iterator[Any]:
        self.file.seek(0)
        return self

    def __next__(self) -> dict[str, Any]:
        assert self.opened_by == os.getpid(), "made in another process"
        line = self.file.readline()
        if not line:
            raise StopIteration
        own = -1.0 if self.rng is None else self.rng.random()
        return {"line": int(line), "own": own, "stream": current().stream}


class Locked(DataLoader):
    """Keeps nothing between batches, and holds what cannot be copied; its order is drawn when it is made."""

    def __init__(self) -> None:
        super().__init__(None, 2, 1, infinite=True)
        self.indices = list(range(50))
        self.order = np.random.permutation(50)
        self.lock = threading.Lock()
        self.made_by = os.getpid()

    def generate_train_batch(self) -> Any:
        assert self.made_by == os.getpid()
        with self.lock:
            return {"data": self.order[self.get_indices()]}


class InPlace(DataLoader):
    """Shuffles the very list that it was given."""

    def __init__(self, cases: list[int]) -> None:
        super().__init__(cases, 2, 1, infinite=False, shuffle=True, seed_for_shuffle=4)
        self.indices = cases

    def generate_train_batch(self) -> Any:
        return {"data": np.array(self.get_indices())}


CASES = list(range(24))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "lines"
    path.write_text("".join(f"{i}\n" for i in range(LINES)))
    return path


def epochs(augmenter: DeterministicAugmenter, number: int = 2) -> list[list[str]]:
    return [[fingerprint(batch) for batch in augmenter] for _ in range(number)]


@pytest.mark.parametrize("of_its_own", [None, 3])
@pytest.mark.parametrize(("n", "start_method"), WAYS)
def test_streams_walk_through_files_of_their_own(
    make: Maker, path: Path, n: int, start_method: str, of_its_own: int | None
) -> None:
    options: dict[str, Any] = {"num_streams": 3, "seed": 5}
    started: dict[str, Any] = {**options, "executor": workers(n, start_method)}
    expected = [line for line in range(LINES) for _ in range(3)]
    augmenter = make(lambda: Lines(path, of_its_own), None, n, **started)
    for _ in range(2):
        batches = list(augmenter)
        assert [batch["line"] for batch in batches] == expected
    again = make(lambda: Lines(path, of_its_own), None, 0, **options)
    whole = epochs(again, 1)[0]
    assert [fingerprint(augmenter.replay(0, step)) for step in (0, 1, 50)] == [whole[step] for step in (0, 1, 50)]
    resumed = make(lambda: Lines(path, of_its_own), None, n, **started)
    for _ in range(17):
        next(resumed)
    state = resumed.state_dict()
    goes_on = make(lambda: Lines(path, of_its_own), None, n, **started)
    goes_on.load_state_dict(state)
    assert epochs(goes_on, 1)[0] == whole[17:]


@pytest.mark.parametrize(("n", "start_method"), WAYS)
@pytest.mark.parametrize("make_loader", [Locked, lambda: InPlace(CASES)])
def test_the_number_of_processes_changes_nothing(
    make: Maker, n: int, start_method: str, make_loader: Callable[[], Any]
) -> None:
    options: dict[str, Any] = {
        "seed": 5,
        "batches_per_epoch": 12,
        "num_streams": 4,
    }
    first = epochs(make(make_loader, None, 0, **options))
    np.random.rand(3)  # what the callable draws from is the augmenter's
    augmenter = make(make_loader, None, n, executor=workers(n, start_method), **options)
    assert epochs(augmenter) == first
    assert first[0] != first[1]
    assert list(range(24)) == CASES
    assert augmenter.stats()["mismatches"] == 0
    other_seed = make(make_loader, None, 0, **{**options, "seed": 6})
    assert epochs(other_seed) != first


@pytest.mark.parametrize("n", [0, 2])
@pytest.mark.parametrize("kind", [iter, csv.reader, lambda file: map(int, file)])
def test_iterators_for_one_pass_are_made_for_each_epoch(make: Maker, path: Path, n: int, kind: Any) -> None:
    augmenter = make(lambda: kind(path.open()), None, n, seed=1)
    first, second = (list(map(str, augmenter)) for _ in range(2))
    assert len(first) == LINES
    assert first == second
