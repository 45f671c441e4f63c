"""`DeterministicAugmenter(..., guard=True)` names lines that draw chance from the system, and no
others.
"""

from __future__ import annotations

import importlib
import logging
import os
import pickle
import random
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import detaug
from detaug import Check, DeterministicAugmenter, LocalProcesses, fingerprint
from detaug.system.unseeded_draws import is_the_time
from tests.processes.verify import pipelines
from tests.support.logs import records_of


def reports(
    caplog: pytest.LogCaptureFixture, factory: Any, processes: int, **options: Any
) -> list[str]:
    caplog.clear()
    with caplog.at_level(logging.WARNING, logger="detaug"):
        loader, transform = factory()
        augmenter = DeterministicAugmenter(
            loader, transform, processes, seed=1, check=Check(guard=True, every=0), **options
        )
        for _ in range(5):  # as many as the finite loader has
            next(augmenter)
        augmenter.close()
    return [
        record.getMessage()
        for record in caplog.records
        if "while a batch is made" in record.getMessage()
    ]


@pytest.mark.parametrize("processes", [0, 2])
def test_every_line_that_draws_chance_from_the_system_is_reported_once(
    caplog: pytest.LogCaptureFixture, processes: int
) -> None:
    names = (*pipelines.CHANCE, "TimeAsSeed")
    found = reports(caplog, partial(pipelines.faulty, *names), processes)
    assert sorted(text.split()[0] for text in found) == sorted(
        f"{pipelines.__file__}:{pipelines.line_of(name)}"
        if name != "TimeAsSeed"
        # where the time becomes the seed
        else f"{pipelines.__file__}:{pipelines.line_of(name) + 1}"
        for name in names
    )
    assert sum("by the time of day" in text for text in found) == 1


@pytest.mark.parametrize("processes", [0, 2])
def test_a_seed_that_is_a_process_number_is_reported(
    caplog: pytest.LogCaptureFixture, processes: int
) -> None:
    names = ("PidAsSeed", "ParentAsSeed")
    found = reports(caplog, partial(pipelines.faulty, *names), processes)
    places = [f"{pipelines.__file__}:{pipelines.line_of(name)}" for name in names]
    assert sorted(text.split()[0] for text in found) == sorted(places)
    assert all("by the number of a process" in text for text in found)


def _seeds_as_webdataset(**batch: Any) -> dict[str, Any]:
    return {**batch, "drawn": random.Random(int((os.getpid() + time.time()) * 1e9)).random()}


def _seeds_by_several_numbers(**batch: Any) -> dict[str, Any]:
    return {**batch, "drawn": np.random.default_rng([7, time.time_ns()]).random()}


def _seeds_by_a_number_of_numpys(**batch: Any) -> dict[str, Any]:
    seed = np.int64(time.time() * 1e6) + os.getppid()
    return {**batch, "drawn": np.random.default_rng(seed).random()}


@pytest.mark.parametrize(
    "transform", [_seeds_as_webdataset, _seeds_by_several_numbers, _seeds_by_a_number_of_numpys]
)
def test_the_time_is_recognised_beside_other_numbers(
    caplog: pytest.LogCaptureFixture, transform: Any
) -> None:
    (text,) = reports(caplog, lambda: (pipelines.Loader(), transform), 1)
    assert "by the time of day" in text
    assert text.startswith(f"{__file__}:")


IMPORTED_LATE = "from os import urandom\n\ndef draw():\n    return urandom(1)[0]\n"


def _imports_late(**batch: Any) -> dict[str, Any]:
    module = importlib.import_module("imported_late")
    if detaug.current().step == 0:
        return batch
    return {**batch, "drawn": module.draw()}


def test_a_module_that_a_batch_imports_is_watched_in_the_next(
    caplog: pytest.LogCaptureFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "imported_late.py").write_text(IMPORTED_LATE)
    monkeypatch.syspath_prepend(tmp_path)
    (text,) = reports(caplog, lambda: (pipelines.Loader(), _imports_late), 0)
    assert text.startswith(f"{tmp_path / 'imported_late.py'}:4")


SEEDED: dict[str, Callable[[int], Any]] = {
    "RandomState": lambda seed: np.random.RandomState(seed).rand(),
    "SeedSequence": lambda seed: np.random.SeedSequence([seed, 3]).generate_state(1)[0],
    "spawn_key": lambda seed: np.random.SeedSequence(3, spawn_key=(seed,)).generate_state(1)[0],
    "random.Random": lambda seed: random.Random(seed).random(),
    "torch.manual_seed": lambda seed: torch.manual_seed(seed).initial_seed(),
}


class Draws:
    """Draws with a seed that a function gives."""

    def __init__(self, kind: str, seed: Callable[[], int]) -> None:
        self.kind = kind
        self.seed = seed

    def __call__(self, **batch: Any) -> dict[str, Any]:
        return {**batch, "drawn": float(SEEDED[self.kind](self.seed()))}


@pytest.mark.parametrize("kind", SEEDED)
def test_each_way_to_seed_is_watched(caplog: pytest.LogCaptureFixture, kind: str) -> None:
    constants: dict[str, Callable[[], int]] = {
        "by the number of a process": lambda: os.getpid(),
        "by the time of day": lambda: int(time.time()),
    }
    for reason, seed in constants.items():
        (text,) = reports(caplog, partial(_of_loader_and, Draws(kind, seed)), 0)
        assert reason in text
        assert text.startswith(f"{__file__}:")
    assert reports(caplog, partial(_of_loader_and, Draws(kind, lambda: 7)), 0) == []


def _of_loader_and(transform: Any) -> Any:
    return pipelines.Loader(), transform


def _asks_for_classes(**batch: Any) -> dict[str, Any]:
    state = np.random.RandomState(5)
    copy = pickle.loads(pickle.dumps([state, np.random.PCG64(6)]))
    kinds = {np.random.RandomState: 1}
    assert isinstance(state, np.random.RandomState)
    assert type(state) == np.random.RandomState  # noqa: E721
    assert not isinstance(state, np.random.PCG64)
    assert issubclass(type(state), np.random.RandomState)
    return {**batch, "kind": kinds[type(copy[0])], "drawn": copy[0].rand()}


def test_numpys_classes_are_what_they_are_while_they_are_watched(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert reports(caplog, lambda: (pipelines.Loader(), _asks_for_classes), 0) == []


def test_a_number_that_is_by_chance_a_process_number_is_no_such_seed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    seeds = partial(_with_seed, seed=os.getpid())
    assert reports(caplog, lambda: (pipelines.Loader(), seeds), 0) == []


def _with_seed(seed: int, **batch: Any) -> dict[str, Any]:
    return {**batch, "drawn": np.random.default_rng(seed).random()}


def test_workers_that_are_spawned_are_watched_as_well(caplog: pytest.LogCaptureFixture) -> None:
    found = reports(caplog, pipelines.default_rng, 1, executor=LocalProcesses(start_method="spawn"))
    assert [text.split()[0] for text in found] == [
        f"{pipelines.__file__}:{pipelines.line_of('DefaultRng')}"
    ]


def test_batches_are_the_same_with_the_guard_and_without() -> None:
    runs = []
    for guard in (False, True):
        loader, transform = pipelines.sound()
        augmenter = DeterministicAugmenter(
            loader, transform, 0, seed=1, check=Check(guard=guard, every=0)
        )
        runs.append([fingerprint(next(augmenter)) for _ in range(4)])
    assert runs[0] == runs[1]


def test_nothing_is_watched_between_batches(caplog: pytest.LogCaptureFixture) -> None:
    loader, transform = pipelines.sound()
    augmenter = DeterministicAugmenter(
        loader, transform, 0, seed=1, check=Check(guard=True, every=0)
    )
    original = random.Random.seed
    next(augmenter)
    with caplog.at_level(logging.WARNING, logger="detaug"):
        np.random.default_rng()
        random.Random()
        np.random.default_rng(int(time.time()))
    assert not records_of(caplog)
    assert random.Random.seed is original


def _uses_a_temporary_file(**batch: Any) -> Any:
    import tempfile

    with tempfile.NamedTemporaryFile() as file:
        file.write(batch["data"].tobytes())
    return batch


@pytest.mark.parametrize(
    "factory",
    [
        pipelines.sound,
        pipelines.stateful,
        pipelines.finite,
        lambda: (pipelines.Loader(), _uses_a_temporary_file),
    ],
)
def test_draws_from_seeded_state_and_names_of_temporary_files_are_no_fault(
    caplog: pytest.LogCaptureFixture, factory: Any
) -> None:
    assert reports(caplog, factory, 0) == []


@pytest.mark.parametrize("unit", [1, 1e3, 1e6, 1e9])
def test_present_time_is_known_in_every_unit_and_other_seeds_are_not_taken_for_it(
    unit: float,
) -> None:
    now = time.time()
    assert is_the_time(int(now * unit))
    assert not is_the_time(int((now - 86_400) * unit))
    if unit <= 1e3:
        assert is_the_time(int(now * unit) % 2**32)
    for with_process_number in (now * unit + 70_003, (now + 70_003) * unit):
        assert is_the_time(int(with_process_number), {70_003, 5})
    assert not any(is_the_time(seed) for seed in (0, 1, 42, 1234, 2**31, 2**63, 10**400, 3.5))
