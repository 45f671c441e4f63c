"""Fixtures that make augmenters and start programs, and the choice of cases that run by default.

A folder's conftest imports the fixtures that its tests use.
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


#: Tests whose cases of spawn run by default. They cover what the start method may change: batches,
#: deaths of workers, and which objects can be pickled.
SPAWN_ALWAYS = {
    "test_every_process_below_the_augmenter_may_be_killed_in_turn",
    "test_loader_that_cannot_travel_is_refused_at_once_with_its_place",
    "test_local_class_as_loader_and_transform",
    "test_the_scripts_own_classes_come_back_as_themselves",
}


def mark_rare_cases(items: list[pytest.Item]) -> None:
    """Mark a test as slow if another case shows the same.

    All cases of forkserver are slow: to the engine it differs from spawn only in how a worker
    starts. So are most cases of spawn, as each starts several interpreters that import torch.
    """
    for item in items:
        parameters = item.callspec.params if hasattr(item, "callspec") else {}
        methods = [value for value in parameters.values() if isinstance(value, str)]
        if "forkserver" in methods:
            item.add_marker(pytest.mark.slow)
        elif "spawn" in methods and _repeats_another_case(item, parameters):
            item.add_marker(pytest.mark.slow)


def _repeats_another_case(item: pytest.Item, parameters: dict[str, Any]) -> bool:
    """Return whether a case of spawn shows nothing that another case does not."""
    if getattr(item, "originalname", "") not in SPAWN_ALWAYS:
        return True
    # Without workers there is no start method.
    return parameters.get("n") == "0"


#: Modules in which the batches of workers are checked, as by default for a user. In all others only
#: batches that are made without workers are checked: to check a worker's batch costs a process, and
#: `tests/processes/purity` tests these checks.
WITH_CHECKS = {"test_same_batches", "test_loader_states", "test_nnunet_loader"}

#: Modules about the end of a program. The interpreters of their scripts are finalized completely;
#: see `Preloaded.run`.
ABOUT_THE_END = {
    "test_shutdown",
    "test_loaders_own_processes",
    "test_printing_threads",
    "test_preemption",
}


def cases_with_workers(names: Iterable[str], number: int, always: Container[str]) -> list[Any]:
    """Return cases of (name, number of workers) for a claim that holds with and without workers.

    Args:
        names: each has a case without workers and one with workers.
        number: of workers.
        always: names whose case with workers runs by default; the others' is slow.
    """
    cases: list[Any] = [(name, 0) for name in names]
    for name in names:
        marks = () if name in always else pytest.mark.slow
        cases.append(pytest.param(name, number, marks=marks))
    return cases


def workers(number: int, start_method: str) -> LocalProcesses | None:
    """Return the augmenter's ``executor`` for these workers: None if there are none."""
    return LocalProcesses(start_method) if number else None


class Maker:
    """A maker of augmenters for one test, which closes them at the test's end.

    Args:
        checks: whether batches of workers are checked unless the test says otherwise.
    """

    def __init__(self, checks: bool = True) -> None:
        self._augmenters: list[DeterministicAugmenter] = []
        self._checks = checks

    def __call__(self, *arguments: Any, **options: Any) -> DeterministicAugmenter:
        """Return `DeterministicAugmenter(*arguments, **options)`."""
        num_processes = arguments[2] if len(arguments) > 2 else options.get("num_processes")
        options = self._with_default_check(num_processes, options)
        return self.keep(DeterministicAugmenter(*arguments, **options))

    def from_dataset(self, *arguments: Any, **options: Any) -> DeterministicAugmenter:
        """Return `DeterministicAugmenter.from_dataset(*arguments, **options)`."""
        options = self._with_default_check(options.get("num_processes"), options)
        return self.keep(DeterministicAugmenter.from_dataset(*arguments, **options))

    def _with_default_check(self, num_processes: Any, options: dict[str, Any]) -> dict[str, Any]:
        """Return options in which ``check`` has the default of this test's module."""
        if self._checks or not num_processes:
            return options
        return {"check": False, **options}

    def keep(self, augmenter: DeterministicAugmenter) -> DeterministicAugmenter:
        """Close an augmenter at the test's end; return it."""
        self._augmenters.append(augmenter)
        return augmenter

    def close(self) -> None:
        """Close all augmenters, the last one first."""
        while self._augmenters:
            self._augmenters.pop().close()


@pytest.fixture
def make(request: pytest.FixtureRequest) -> Iterator[Maker]:
    """Yield a `Maker` with the checks of this module."""
    maker = Maker(request.path.stem in WITH_CHECKS)
    yield maker
    maker.close()


@pytest.fixture
def mark(monkeypatch: pytest.MonkeyPatch) -> str:
    """Change a variable of a module; only forked workers see it, which proves the start method."""
    monkeypatch.setattr(witness, "MARK", "changed in the parent")
    return "changed in the parent"


@pytest.fixture(params=START_METHODS)
def start_method(request: pytest.FixtureRequest) -> str:
    """Return each start method in turn."""
    return str(request.param)


@pytest.fixture
def script(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., Script]]:
    """Yield `start_script` for this test's folder; kill what is left of the scripts afterwards."""
    scripts: list[Script] = []
    whole_end = request.path.stem in ABOUT_THE_END

    def start(body: str, *arguments: str, **options: Any) -> Script:
        new_script = start_script(tmp_path, body, *arguments, whole_end=whole_end, **options)
        scripts.append(new_script)
        return new_script

    yield start
    for started_script in scripts:
        started_script.kill_all()
