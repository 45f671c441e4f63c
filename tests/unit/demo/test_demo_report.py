"""What the demo says of its runs; the runs themselves are made up."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from click.testing import CliRunner

from detaug.demo import run
from detaug.tools.cli import main


def made_up(stock: Sequence[str], ours: Sequence[str]) -> run.Runs:
    """Runs with these fingerprints; the first of each augmenter is the reference."""
    rows = []
    for augmenter, prints in ((run.STOCK, stock), (run.OURS, ours)):
        reference, *others = prints
        rows.append(run.Run(augmenter, "reference", augmenter=augmenter))
        for other in others:
            verdict = "equal" if other == reference else "different"
            rows.append(run.Run(augmenter, verdict, augmenter=augmenter))
    return run.Runs(tuple(rows))


def test_a_run_of_ours_that_differs_fails_the_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("nilearn")

    def run_all(*_: object) -> run.Runs:
        return made_up(["aa", "ab"], ["ba", "ba", "bb"])

    monkeypatch.setattr(run, "run_all", run_all)
    result = CliRunner().invoke(main, ["demo"])
    assert result.exit_code == 1
    assert "1 of 3 runs differ" in result.output


@pytest.mark.parametrize(
    ("second", "said"), [("aa", "agree this time"), ("ab", "two runs with the same seeds differ")]
)
def test_stock_runs_are_told_as_they_are_and_do_not_count(second: str, said: str) -> None:
    found = made_up(["aa", second], ["ba", "ba"])
    assert said in str(found)
    assert found.ok
