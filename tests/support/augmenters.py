"""Fixtures that make augmenters and start programs, and which cases of a matrix run by default.

A folder's conftest imports the fixtures that its tests want.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from detaug import DeterministicAugmenter, LocalProcesses
from tests.support import witness
from tests.support.processes import Script, start_script

START_METHODS = ("fork", "spawn", "forkserver")


#: Tests that have a case of spawn by default: what the start method could change about batches,
#: deaths of workers, and what travels.
SPAWN_ALWAYS = {
    "test_every_process_below_the_augmenter_may_be_killed_in_turn",
    "test_loader_that_cannot_travel_is_refused_at_once_with_its_place",
    "test_local_class_as_loader_and_transform",
    "test_the_scripts_own_classes_come_back_as_themselves",
}


def mark_rare_cases(items: list[pytest.Item]) -> None:
    """Mark as slow what repeats the claim of another case.

    forkserver's cases go with the slow tests: to the engine it differs from spawn in how a worker
    is born only. So do most of spawn's, each of which starts several interpreters that import
    torch.
    """
    for item in items:
        parameters = item.callspec.params if hasattr(item, "callspec") else {}
        methods = [value for value in parameters.values() if isinstance(value, str)]
        rarely = getattr(item, "originalname", "") not in SPAWN_ALWAYS
        # without workers there is no start method
        rarely = rarely or parameters.get("n") == "0"
        if "forkserver" in methods or ("spawn" in methods and rarely):
            item.add_marker(pytest.mark.slow)


#: Modules whose workers' batches are checked as a user has it. Elsewhere batches are checked where
#: they are made without workers only: a check of a worker's batch costs a process, and
#: `tests/processes/purity` is about those.
WITH_CHECKS = {"test_same_batches", "test_loader_states", "test_nnunet_loader"}

#: Modules whose scripts' interpreters are taken apart to the last module: they are about how a
#: program ends.
ABOUT_THE_END = {
    "test_shutdown",
    "test_loaders_own_processes",
    "test_printing_threads",
    "test_preemption",
}


def cases_with_workers(names: Iterable[str], number: int, always: Container[str]) -> list[Any]:
    """Return cases of (name, number of workers) for a claim that holds wherever batches are made.

    Every name has a case without workers, and one with `number` of them. Of these, those that are
    not in `always` are slow.
    """
    cases: list[Any] = [(name, 0) for name in names]
    for name in names:
        marks = () if name in always else pytest.mark.slow
        cases.append(pytest.param(name, number, marks=marks))
    return cases


def workers(number: int, start_method: str) -> LocalProcesses | None:
    """The augmenter's ``executor`` for so many workers: 0 take no start method."""
    return LocalProcesses(start_method) if number else None


class Maker:
    """Makes augmenters as a test asks for them and closes them when it is over."""

    def __init__(self, checks: bool = True) -> None:
        self._made: list[DeterministicAugmenter] = []
        self._checks = checks

    def __call__(self, *arguments: Any, **options: Any) -> DeterministicAugmenter:
        processes = arguments[2] if len(arguments) > 2 else options.get("num_processes")
        return self.keep(
            DeterministicAugmenter(*arguments, **self._with_checks(processes, options))
        )

    def from_dataset(self, *arguments: Any, **options: Any) -> DeterministicAugmenter:
        options = self._with_checks(options.get("num_processes"), options)
        return self.keep(DeterministicAugmenter.from_dataset(*arguments, **options))

    def _with_checks(self, processes: Any, options: dict[str, Any]) -> dict[str, Any]:
        return options if self._checks or not processes else {"check": False, **options}

    def keep(self, augmenter: DeterministicAugmenter) -> DeterministicAugmenter:
        self._made.append(augmenter)
        return augmenter

    def close(self) -> None:
        while self._made:
            self._made.pop().close()


@pytest.fixture
def make(request: pytest.FixtureRequest) -> Iterator[Maker]:
    maker = Maker(request.path.stem in WITH_CHECKS)
    yield maker
    maker.close()


@pytest.fixture
def mark(monkeypatch: pytest.MonkeyPatch) -> str:
    """Change a module of the parent, as proof of the start method: only forked workers see it."""
    monkeypatch.setattr(witness, "MARK", "changed in the parent")
    return "changed in the parent"


@pytest.fixture(params=START_METHODS)
def start_method(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def script(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., Script]]:
    """Start a user's script; whatever of it is left at the end of the test is killed."""
    started: list[Script] = []
    whole_end = request.path.stem in ABOUT_THE_END

    def start(body: str, *arguments: str, **options: Any) -> Script:
        started.append(start_script(tmp_path, body, *arguments, whole_end=whole_end, **options))
        return started[-1]

    yield start
    for executor in started:
        executor.kill_all()


@pytest.fixture(autouse=True)
def no_seed_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DETAUG_SEED", raising=False)
