"""What the demo says of its runs."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from click.testing import CliRunner

from detaug.cli import main
from detaug.demo import report, run


def made_up(augmenter: str, fingerprints: Sequence[str]) -> list[run.Run]:
    return [
        run.Run(run.Plan(augmenter, 2), print_, 1.0, None if i == 0 else print_ == fingerprints[0], (1, 2))
        for i, print_ in enumerate(fingerprints)
    ]


def test_a_run_of_ours_that_differs_fails_the_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("nilearn")
    runs = made_up(run.STOCK, ["aa", "ab"]) + made_up(run.OURS, ["ba", "ba", "bb"])
    monkeypatch.setattr(run, "run_all", lambda *_: runs)
    result = CliRunner().invoke(main, ["demo"])
    assert result.exit_code == 1
    assert "1 of 3 runs differ" in result.output


def test_speed_is_told_where_enough_batches_were_timed() -> None:
    def at(augmenter: str, rate: float, batches: int) -> run.Run:
        return run.Run(run.Plan(augmenter, 0), "aa", rate, None, (1, 2), timed_batches=batches)

    enough = [at(run.OURS, 4.0, 21), at(run.NATIVE, 10.0, 21)]
    assert run.speed_up(enough) == 2.5
    assert "2.5 times[/] the batches per second of batchgenerators'" in report.verdict(enough)
    few = [at(run.OURS, 2.0, 5), at(run.NATIVE, 10.0, 5)]
    assert run.speed_up(few) is None
    assert "times" not in report.verdict(few)


def test_stock_runs_that_happen_to_agree_are_shown_as_agreeing() -> None:
    runs = made_up(run.STOCK, ["aa", "aa"]) + made_up(run.OURS, ["ba", "ba"])
    assert "agree this time" in report.verdict(runs)
    assert run.all_same(runs)


def test_clock_starts_after_the_warm_up() -> None:
    assert run.Settings(batches=64).warm_up == 8
    assert run.Settings(batches=6).warm_up == 1


@pytest.mark.parametrize(("counts", "compared"), [((0, 1, 2, 3), 2), ((0,), 1), ((4, 8), 8)])
def test_augmenters_are_compared_at_one_process_count(counts: tuple[int, ...], compared: int) -> None:
    assert run.Settings(processes=counts).compared_processes == compared
