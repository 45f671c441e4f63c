"""`detaug demo` as a user meets it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from detaug.cli import main
from detaug.demo import run


def detaug(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from detaug.cli import main; main(prog_name='detaug')", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_help_names_the_commands() -> None:
    done = detaug("--help")
    assert done.returncode == 0
    assert "demo" in done.stdout


def test_command_line_loads_no_heavy_library_before_it_is_told_what_to_do() -> None:
    check = (
        "import sys, detaug.cli.demo; print(sorted({'torch', 'numba', 'scipy', 'batchgenerators'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("counts", ["two", "1,-1", "", "1,,2"])
def test_process_counts_that_are_none_are_refused(counts: str) -> None:
    result = CliRunner().invoke(main, ["demo", "--processes", counts])
    assert result.exit_code == 2
    assert ("not a list of non-negative integers" if counts else "at least one process count") in result.output


def test_json_file_that_cannot_be_written_is_refused_before_the_work(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["demo", "--json", str(tmp_path / "nowhere" / "demo.json")])
    assert result.exit_code == 2
    assert "does not exist" in result.output


def test_missing_nilearn_is_said_with_the_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    from detaug.demo import mri

    mri.load_template.cache_clear()
    mri.load_cases.cache_clear()
    monkeypatch.setitem(sys.modules, "nilearn", None)
    result = CliRunner().invoke(main, ["demo"])
    assert result.exit_code == 2
    assert "pip install 'detaug[demo]'" in result.output


def test_demo_shows_that_every_run_of_ours_gives_the_same_batches(tmp_path: Path) -> None:
    pytest.importorskip("nilearn")
    file = tmp_path / "demo.json"
    done = detaug("demo", "--batches", "12", "--patch", "24", "--processes", "0,2", "--json", str(file))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all 6 runs agree" in done.stdout

    written = json.loads(file.read_text())
    assert written["deterministic"] is True
    ours = [row for row in written["runs"] if row["augmenter"] == run.OURS]
    assert [row["processes"] for row in ours] == [0, 2, 2, 2]
    assert [row["circumstance"] for row in ours] == ["", "", "random delays", "a worker killed"]
    assert len({row["fingerprint"] for row in ours}) == 1
    own = [row for row in written["runs"] if row["augmenter"] == run.NATIVE]
    assert [row["processes"] for row in own] == [0, 2]
    assert len({row["fingerprint"] for row in own}) == 1
    assert own[0]["fingerprint"] != ours[0]["fingerprint"]
    assert written["speed_up_with_own_transforms"] is None, "a dozen tells nothing about speed"
    killed = ours[-1]
    assert killed["processes_seen"] >= 2
    assert killed["notices"], "the death of a worker is said"


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
