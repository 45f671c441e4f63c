"""`python -m benchmarks fidelity`: its statistics, its file of results, its tasks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from scipy import stats

from benchmarks.fidelity import results
from benchmarks.fidelity.__main__ import main
from benchmarks.fidelity.results import (
    Interval,
    Result,
    mean_difference,
    mean_interval,
    missing,
    spreads,
)
from benchmarks.fidelity.tasks import TASKS
from benchmarks.fidelity.training import ARMS, DETAUG, STOCK, VARIANT
from benchmarks.forks import seed_from_system
from benchmarks.tables.studies import spread_text
from detaug.tools.bench.timing import in_fresh_process

OURS, THEIRS = [0.71, 0.74, 0.78, 0.70, 0.75], [0.72, 0.77, 0.69, 0.80, 0.76, 0.73]


def some(task: str = "tissue-3d", runs: int = 5) -> list[Result]:
    rng = np.random.default_rng(1)
    return [
        Result(task, arm, run, {"epochs": 2}, float(rng.normal(0.75, 0.02)))
        for run in range(runs)
        for arm in ARMS
    ]


def limits(interval: Interval) -> tuple[float, float]:
    return interval.mean - interval.half, interval.mean + interval.half


def test_intervals_are_students_and_welchs() -> None:
    mean = mean_interval(OURS)
    expected = stats.t.interval(0.95, len(OURS) - 1, np.mean(OURS), stats.sem(OURS))
    assert limits(mean) == pytest.approx(expected)

    difference = mean_difference([(OURS, THEIRS)])
    welch = stats.ttest_ind(OURS, THEIRS, equal_var=False).confidence_interval(0.95)
    assert limits(difference) == pytest.approx((welch.low, welch.high))


def test_study_goes_on_where_it_was_killed(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    assert results.read(file) == []
    first, second = Result("a", STOCK, 1, {}, 0.5), Result("a", DETAUG, 1, {}, 0.6)
    results.append(file, first)
    with file.open("a") as opened:
        opened.write('{"task": "a", "arm"')  # killed in the middle of a line
    assert results.read(file) == [first]
    assert missing(results.read(file), ["a"], (STOCK, DETAUG), 1) == [(1, "a", DETAUG)]
    results.append(file, second)
    assert results.read(file) == [first, second]
    assert missing(results.read(file), ["a"], (STOCK, DETAUG), 1) == []


def test_results_of_other_settings_are_not_continued(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    results.append(file, some()[0])
    done = CliRunner().invoke(main, ["--results", str(file), "--only", "tissue-3d"])
    assert done.exit_code == 2
    assert "epochs was 2, is 8" in done.output
    assert "Name another file" in done.output


def test_what_a_file_holds_is_shown(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    for each in [*some("tissue-3d"), *some("nuclei-2d", runs=3)]:
        results.append(file, each)
    done = CliRunner().invoke(main, ["--results", str(file), "--show"])
    assert done.exit_code == 0, done.output
    assert "nuclei-2d" in done.stdout
    assert "5 + 5" in done.stdout
    assert "all tasks" in done.stdout
    assert "3 + 3" in done.stdout


def test_variants_that_vary_together_differ_less_with_the_same_seeds() -> None:
    chance = np.random.default_rng(1).normal(0, 0.02, (3, 40))
    for share in (0.0, 0.9):
        found = [
            Result("a", arm, seed, {}, 0.8 + share * chance[2, seed] + (1 - share) * own[seed])
            for arm, own in ((DETAUG, chance[0]), (VARIANT, chance[1]))
            for seed in range(40)
        ]
        (spread,) = spreads(found, DETAUG, VARIANT)
        low, high = spread.correlation_range
        assert spread.seeds == 40
        assert (spread.paired < 0.5 * spread.unpaired) == (share == 0.9)
        assert low < spread.correlation < high
        assert (low > 0.5) == (share == 0.9)
        text = spread_text(found)
        assert "| a | 40 | 0.8" in text
        assert ("Pairing helped on 1 of 1 tasks" in text) == (share == 0.9)
        assert ("No gain from pairing was found" in text) == (share == 0.0)
    assert spread_text(found[:3]) == ""


def seed_in_a_training() -> int:
    seed_from_system()
    return torch.initial_seed()


def test_trainings_of_one_study_do_not_inherit_one_seed() -> None:
    seeds = [in_fresh_process(seed_in_a_training) for _ in range(2)]
    assert seeds[0] != seeds[1]


def test_training_and_validation_share_no_voxel() -> None:
    pytest.importorskip("nilearn")
    for name in ("tissue-3d", "tissue-2d"):
        cases = list(TASKS[name].cases())
        used = {use: [case for case in cases if case.validates is use] for use in (True, False)}
        assert used[True]
        assert used[False]
        assert all(case.image.shape == case.labels.shape and case.image.ndim == 3 for case in cases)
        assert {0, 1, 2} == {int(label) for case in cases for label in np.unique(case.labels)}
        for validating in used[True]:
            assert all(
                not np.shares_memory(validating.image, training.image) for training in used[False]
            )


@pytest.mark.slow
def test_both_arms_are_trained_and_validated(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    arguments = ["--quick", "--seeds", "1", "--only", "tissue-2d", "--results", str(file)]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 0, done.output
    trained = results.read(file)
    assert [result.arm for result in trained] == list(ARMS)
    assert all(0 <= result.dice <= 1 and len(result.labels) == 2 for result in trained)
