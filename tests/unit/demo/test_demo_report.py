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
    plan = run.Plan(augmenter, 2, augmenter)
    return [
        run.Run(plan.what, verdict, plan=plan, fingerprint=print_)
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
    assert [each["verdict"] for each in runs.as_json()["runs"]][-1] == "different"


@pytest.mark.parametrize(("second", "said"), [("aa", "agree this time"), ("ab", "two runs with the same seeds differ")])
def test_stock_runs_are_told_as_they_are_and_do_not_count(second: str, said: str) -> None:
    found = result_of(made_up(run.STOCK, ["aa", second]) + made_up(run.OURS, ["ba", "ba"]))
    assert said in str(found)
    assert found.ok
