"""A callable that makes the loader is called by each process that makes batches: what it opens is
opened there.
"""

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

from detaug import DeterministicAugmenter, current
from tests.processes.purity.ways import check_every, run_all_ways
from tests.support.augmenters import Maker, workers

LINES = 40


class Lines:
    """Walks through an open file."""

    def __init__(self, path: Path, seed_of_own: int | None = None) -> None:
        self.file = open(path)
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
    """Keeps nothing between batches, and holds what cannot be copied; its order is drawn when it is
    made.
    """

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


KINDS: dict[str, Callable[[Path], Any]] = {
    "walks through a file": Lines,
    "with a generator of its own": lambda path: Lines(path, 3),
    "cannot be copied": lambda path: Locked(),
    "shuffles what it was given": lambda path: InPlace(CASES),
}


@pytest.mark.parametrize("start_method", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", KINDS)
def test_a_loader_made_by_each_process_gives_the_same_batches(
    path: Path, kind: str, start_method: str
) -> None:
    def make(num_processes: int) -> DeterministicAugmenter:
        options: dict[str, Any] = {"seed": 5, "num_streams": 3, "check": check_every(num_processes)}
        executor = workers(num_processes, start_method)
        return DeterministicAugmenter(
            lambda: KINDS[kind](path), None, num_processes, executor=executor, **options
        )

    found = run_all_ways(make)
    found.assert_right()
    if kind == "walks through a file":
        lines = [batch["line"] for batch in found.epoch("2 workers", 2)]
        assert lines == [step // 3 for step in range(len(lines))], (
            "each stream has a file of its own"
        )
    assert list(range(24)) == CASES


@pytest.mark.parametrize("n", [0, 2])
@pytest.mark.parametrize("kind", [iter, csv.reader, lambda file: map(int, file)])
def test_iterators_for_one_pass_are_made_for_each_epoch(
    make: Maker, path: Path, n: int, kind: Any
) -> None:
    augmenter = make(lambda: kind(path.open()), None, n, seed=1)
    first, second = (list(map(str, augmenter)) for _ in range(2))
    assert len(first) == LINES
    assert first == second
