"""`python -m benchmarks fidelity` has the right statistics, file of results and tasks."""

from __future__ import annotations

from itertools import product
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

#: Dice scores of two arms.
SCORES = [0.71, 0.74, 0.78, 0.70, 0.75]
OTHER_SCORES = [0.72, 0.77, 0.69, 0.80, 0.76, 0.73]


def random_results(task: str, num_seeds: int) -> list[Result]:
    """Return results of all arms with random scores, seed by seed."""
    rng = np.random.default_rng(1)
    all_results = []
    for seed in range(num_seeds):
        for arm in ARMS:
            score = float(rng.normal(0.75, 0.02))
            all_results.append(Result(task, arm, seed, {"epochs": 2}, score))
    return all_results


def limits(interval: Interval) -> tuple[float, float]:
    """Return the lower and the upper limit."""
    return interval.mean - interval.half, interval.mean + interval.half


def test_intervals_are_students_and_welchs() -> None:
    student = stats.t.interval(0.95, len(SCORES) - 1, np.mean(SCORES), stats.sem(SCORES))
    assert limits(mean_interval(SCORES)) == pytest.approx(student)

    difference = mean_difference([(SCORES, OTHER_SCORES)])
    welch = stats.ttest_ind(SCORES, OTHER_SCORES, equal_var=False).confidence_interval(0.95)
    assert limits(difference) == pytest.approx((welch.low, welch.high))


def test_study_goes_on_where_it_was_killed(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    assert results.read(file) == []
    first = Result("a", STOCK, 1, {}, 0.5)
    second = Result("a", DETAUG, 1, {}, 0.6)
    results.append(file, first)
    # The study was killed in the middle of a line.
    with file.open("a") as opened:
        opened.write('{"task": "a", "arm"')
    assert results.read(file) == [first]
    assert missing(results.read(file), ["a"], (STOCK, DETAUG), 1) == [(1, "a", DETAUG)]
    results.append(file, second)
    assert results.read(file) == [first, second]
    assert missing(results.read(file), ["a"], (STOCK, DETAUG), 1) == []


def test_results_of_other_settings_are_not_continued(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    results.append(file, random_results("tissue-3d", 1)[0])
    done = CliRunner().invoke(main, ["--results", str(file), "--only", "tissue-3d"])
    assert done.exit_code == 2
    assert "epochs was 2, is 8" in done.output
    assert "Name another file" in done.output


def test_what_a_file_holds_is_shown(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    for result in [*random_results("tissue-3d", 5), *random_results("nuclei-2d", 3)]:
        results.append(file, result)
    done = CliRunner().invoke(main, ["--results", str(file), "--show"])
    assert done.exit_code == 0, done.output
    assert "nuclei-2d" in done.stdout
    assert "5 + 5" in done.stdout
    assert "all tasks" in done.stdout
    assert "3 + 3" in done.stdout


def correlated_results(share: float) -> list[Result]:
    """Return the results of two variants for 40 seeds.

    Args:
        share: of a score's deviation that both variants have in common for the same seed.
    """
    of_detaug, of_variant, in_common = np.random.default_rng(1).normal(0, 0.02, (3, 40))
    all_results = []
    for arm, own in ((DETAUG, of_detaug), (VARIANT, of_variant)):
        scores = 0.8 + share * in_common + (1 - share) * own
        for seed, score in enumerate(scores):
            all_results.append(Result("a", arm, seed, {}, score))
    return all_results


def test_variants_that_vary_together_differ_less_with_the_same_seeds() -> None:
    for share in (0.0, 0.9):
        all_results = correlated_results(share)
        (spread,) = spreads(all_results, DETAUG, VARIANT)
        low, high = spread.correlation_range
        assert spread.seeds == 40
        assert (spread.paired < 0.5 * spread.unpaired) == (share == 0.9)
        assert low < spread.correlation < high
        assert (low > 0.5) == (share == 0.9)
        text = spread_text(all_results)
        assert "| a | 40 | 0.8" in text
        assert ("Pairing helped on 1 of 1 tasks" in text) == (share == 0.9)
        assert ("No gain from pairing was found" in text) == (share == 0.0)
    assert spread_text(all_results[:3]) == ""


def seed_in_a_training() -> int:
    """Return torch's seed as a training of the study begins with it."""
    seed_from_system()
    return torch.initial_seed()


def test_trainings_of_one_study_do_not_inherit_one_seed() -> None:
    seeds = [in_fresh_process(seed_in_a_training) for _ in range(2)]
    assert seeds[0] != seeds[1]


def test_training_and_validation_share_no_voxel() -> None:
    pytest.importorskip("nilearn")
    for name in ("tissue-3d", "tissue-2d"):
        cases = list(TASKS[name].cases())
        validating = [case for case in cases if case.validates]
        training = [case for case in cases if not case.validates]
        assert validating
        assert training
        labels: set[int] = set()
        for case in cases:
            assert case.image.shape == case.labels.shape
            assert case.image.ndim == 3
            labels.update(np.unique(case.labels).tolist())
        assert labels == {0, 1, 2}
        for one, other in product(validating, training):
            assert not np.shares_memory(one.image, other.image)


@pytest.mark.slow
def test_both_arms_are_trained_and_validated(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    arguments = ["--quick", "--seeds", "1", "--only", "tissue-2d", "--results", str(file)]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 0, done.output
    trained = results.read(file)
    assert [result.arm for result in trained] == list(ARMS)
    for result in trained:
        assert 0 <= result.dice <= 1
        assert len(result.labels) == 2
