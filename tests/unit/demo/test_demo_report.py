"""What the demo reports of its runs. The runs are invented."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from click.testing import CliRunner

from detaug.demo import run
from detaug.tools.cli import main


def invented_runs(stock: Sequence[str], ours: Sequence[str]) -> run.Runs:
    """Return runs of both augmenters with these fingerprints; the first is each one's reference."""
    rows = []
    for augmenter, fingerprints in ((run.STOCK, stock), (run.OURS, ours)):
        reference, *others = fingerprints
        rows.append(run.Run(augmenter, "reference", augmenter=augmenter))
        for other in others:
            verdict = "equal" if other == reference else "different"
            rows.append(run.Run(augmenter, verdict, augmenter=augmenter))
    return run.Runs(tuple(rows))


def test_a_run_of_ours_that_differs_fails_the_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("nilearn")

    def run_all(*_: object) -> run.Runs:
        return invented_runs(["aa", "ab"], ["ba", "ba", "bb"])

    monkeypatch.setattr(run, "run_all", run_all)
    result = CliRunner().invoke(main, ["demo"])
    assert result.exit_code == 1
    assert "1 of 3 runs differ" in result.output


@pytest.mark.parametrize(
    ("second", "text"), [("aa", "agree this time"), ("ab", "two runs with the same seeds differ")]
)
def test_stock_runs_are_told_as_they_are_and_do_not_count(second: str, text: str) -> None:
    runs = invented_runs(["aa", second], ["ba", "ba"])
    assert text in str(runs)
    assert runs.ok
