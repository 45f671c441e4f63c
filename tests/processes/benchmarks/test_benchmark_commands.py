"""`python -m benchmarks …` as a reader of the README meets it."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from benchmarks import headline
from benchmarks.command import RESULTS, keep, require_commit, require_idle
from benchmarks.report import Row, row_of, show
from benchmarks.rows import rows_command
from benchmarks.settings import Settings
from benchmarks.tables.__main__ import TABLES
from detaug.tools.bench.timing import MeasurementError, Ratio
from detaug.tools.cli.options import CannotRun
from tests.support.preloaded import run_code

REPOSITORY = Path(__file__).parents[3]


def rows() -> list[Row]:
    seconds = {"detaug": [0.02, 0.01], "NonDetMultiThreadedAugmenter": [0.01, 0.02]}
    return [row_of("transport", "batches/s", seconds), row_of("first batch", "ms", seconds)]


def one(_: Settings) -> Row:
    return rows()[1]


def two(_: Settings) -> Row:
    raise MeasurementError("it hung")


def test_an_absent_library_is_one_line_with_the_cure() -> None:
    # as where it is not installed: no module of that name is found
    code = (
        "import importlib.util as util, runpy; found = util.find_spec\n"
        "util.find_spec = lambda name, *more: None if name == 'nilearn' else found(name, *more)\n"
        "import sys; sys.argv[1:] = ['nnunet']\n"
        "runpy.run_module('benchmarks', run_name='__main__')"
    )
    done = run_code(code, folder=REPOSITORY, environment=os.environ)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "Error: the benchmarks need nilearn: pip install '.[benchmarks]'\n"


def test_a_ratio_says_how_many_times_as_much_the_other_costs() -> None:
    transport, first = rows()
    assert transport.ours == pytest.approx(1 / 0.015)
    assert transport.comparisons[0].ratio == Ratio(1.25, 0.5, 2.0)
    assert first.ours == first.comparisons[0].theirs == pytest.approx(15)


def test_a_row_that_fails_takes_no_other_with_it(tmp_path: Path) -> None:
    file = tmp_path / "found.json"
    made_up = rows_command("made up", {"one": one, "two": two})
    done = CliRunner().invoke(made_up, ["--json", str(file)])
    assert done.exit_code == 1
    assert "two: not measured. it hung" in done.stderr
    assert [row["name"] for row in json.loads(file.read_text())["rows"]] == ["first batch"]
    assert CliRunner().invoke(made_up, ["--only", "one"]).exit_code == 0


@pytest.mark.parametrize("width", [60, 120])
def test_table_fits_and_says_what_a_ratio_is(width: int) -> None:
    shown = io.StringIO()
    show(rows(), Console(file=shown, width=width), "detaug's engine against others", quick=True)
    text = shown.getvalue()
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    flat = " ".join(text.split())
    assert "how many times as fast detaug is" in flat
    assert "not how fast" in flat


def test_rows_beside_busy_programs_are_said_to_be_rough_and_are_not_kept() -> None:
    busy, idle = rows()
    busy.cores_elsewhere = 1.3
    idle.cores_elsewhere = 0.01
    shown = io.StringIO()
    show([busy, idle], Console(file=shown, width=200), "", quick=False)
    assert "transport: other programs kept 1.3 cores busy" in shown.getvalue()
    assert "first batch: other" not in shown.getvalue()
    with pytest.raises(CannotRun, match=r"ran during transport: nothing is kept"):
        require_idle({"transport": 1.3, "first batch": 0.01})
    require_idle({"first batch": 0.01})


def test_results_are_kept_of_a_commit_alone() -> None:
    with pytest.raises(CannotRun, match=r"changes on top of 0123456789"):
        require_commit({"commit": "0123456789+"})
    with pytest.raises(CannotRun, match=r"no git work tree"):
        require_commit({"commit": None})
    require_commit({"commit": "0123456789"})


def test_a_machines_file_is_one_run_with_its_commit(tmp_path: Path) -> None:
    record = {"cpu": "AMD EPYC, family 25", "commit": "0123456789", "date": "2026-11-28"}
    for number in (2, 1):
        keep({"environment": record, "rows": [row.name for row in rows()[:number]]}, tmp_path)
    (file,) = tmp_path.iterdir()
    assert file.name == "amd-epyc-family-25.json"
    kept = json.loads(file.read_text())
    assert kept["environment"] == record
    assert kept["rows"] == ["transport"]


def test_headline_measures_as_many_rows_as_the_pages_show() -> None:
    assert len(headline.ROWS) == len({line.row for lines in TABLES.values() for line in lines})


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_what_the_pages_show_is_measured_by_one_command(tmp_path: Path) -> None:
    from benchmarks.__main__ import main

    before = {file: file.read_bytes() for file in RESULTS.iterdir()}
    done = CliRunner().invoke(main, ["headline", "--quick", "--json", str(tmp_path / "found.json")])
    assert done.exit_code == 0, done.output
    measured = {row["name"] for row in json.loads((tmp_path / "found.json").read_text())["rows"]}
    assert measured == {line.row for lines in TABLES.values() for line in lines}
    after = {file: file.read_bytes() for file in RESULTS.iterdir()}
    assert after == before, "short rounds are not kept"
