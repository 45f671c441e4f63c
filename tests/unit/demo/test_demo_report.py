"""What the demo says of its runs; the runs themselves are made up."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from click.testing import CliRunner

from detaug.cli import main
from detaug.demo import run


def made_up(augmenter: str, fingerprints: Sequence[str]) -> list[run.Run]:
    """Runs of which the first is the reference."""
    verdicts = ["reference", *("equal" if each == fingerprints[0] else "different" for each in fingerprints[1:])]
    plan = run.Plan(augmenter, 2)
    return [
        run.Run(plan.what, verdict, plan=plan, fingerprint=print_, batches_per_second=1.0)
        for verdict, print_ in zip(verdicts, fingerprints, strict=True)
    ]


def result_of(rows: list[run.Run]) -> run.Runs:
    return run.Runs(tuple(rows), run.Settings())


def test_a_run_of_ours_that_differs_fails_the_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("nilearn")
    runs = result_of(made_up(run.STOCK, ["aa", "ab"]) + made_up(run.OURS, ["ba", "ba", "bb"]))
    monkeypatch.setattr(run, "run_all", lambda *_: runs)
    result = CliRunner().invoke(main, ["demo"])
    assert result.exit_code == 1
    assert "1 of 3 runs differ" in result.output
    assert [each["same_as_first"] for each in runs.as_json()["runs"]] == [None, False, None, True, False]


def test_speed_is_told_where_enough_batches_were_timed() -> None:
    def at(augmenter: str, rate: float, batches: int) -> run.Run:
        return run.Run("", plan=run.Plan(augmenter, 0), batches_per_second=rate, timed_batches=batches)

    enough = result_of([at(run.OURS, 4.0, 21), at(run.NATIVE, 10.0, 21)])
    assert enough.speed_up == 2.5
    assert "2.5 times the batches per second of batchgenerators'" in str(enough)
    few = result_of([at(run.OURS, 2.0, 5), at(run.NATIVE, 10.0, 5)])
    assert few.speed_up is None
    assert "times" not in str(few)


def test_stock_runs_that_happen_to_agree_are_shown_as_agreeing() -> None:
    found = result_of(made_up(run.STOCK, ["aa", "aa"]) + made_up(run.OURS, ["ba", "ba"]))
    assert "agree this time" in str(found)
    assert found.ok


def test_stock_runs_that_differ_are_shown_and_do_not_count() -> None:
    found = result_of(made_up(run.STOCK, ["aa", "ab"]) + made_up(run.OURS, ["ba", "ba"]))
    assert "two runs with the same seeds differ" in str(found)
    assert found.ok


def test_clock_starts_after_the_warm_up() -> None:
    assert run.Settings(batches=64).warm_up == 8
    assert run.Settings(batches=6).warm_up == 1


@pytest.mark.parametrize(("counts", "compared"), [((0, 1, 2, 3), 2), ((0,), 1), ((4, 8), 8)])
def test_augmenters_are_compared_at_one_process_count(counts: tuple[int, ...], compared: int) -> None:
    assert run.Settings(processes=counts).compared_processes == compared
