"""Random pipelines never give other batches silently. `python -m tests.processes.purity.fuzzing --minutes 5` looks for longer."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes.purity.fuzz_cells import CELLS
from tests.processes.purity.fuzz_pipelines import CONTAINERS, FORMS, PLACES, Spec

_ROOT = Path(__file__).resolve().parents[3]


def fuzz(*arguments: str) -> None:
    """In a program of its own, which has made no pipeline before."""
    run = subprocess.run(
        [sys.executable, "-m", "tests.processes.purity.fuzzing", "--quiet", *arguments],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert run.returncode == 0, f"{run.stdout}\n{run.stderr[-3000:]}"


def test_few_pipelines_with_forked_workers() -> None:
    fuzz("--from", "100", "--count", "4", "--methods", "fork")


@pytest.mark.slow
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_pipelines_in_new_interpreters(method: str) -> None:
    fuzz("--from", "2000", "--count", "10", "--methods", method)


def test_every_kind_comes_up_in_a_few_hundred_seeds() -> None:
    specs = [Spec.of(seed) for seed in range(400)]
    assert {spec.state for spec in specs} == set(CELLS)
    assert {spec.container for spec in specs} == set(CONTAINERS)
    assert {spec.form for spec in specs} == set(FORMS)
    assert {(spec.place, spec.correct) for spec in specs} == {(place, use) for place in PLACES for use in (True, False)}
    assert Spec.of(17) == Spec.of(17)
