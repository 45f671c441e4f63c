"""`python -m benchmarks.…` as a reader of the README meets it."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from rich.console import Console

from benchmarks.command import common_options, measure_rows
from benchmarks.engine.__main__ import main as engine
from benchmarks.engine.systems import SYSTEMS
from benchmarks.measure import Ratio
from benchmarks.plot import plot
from benchmarks.report import Check, Row, ratio_check, show
from detaug.cli.options import Command, Target

REPOSITORY = Path(__file__).parents[3]


def rows() -> list[Row]:
    slower = ratio_check("NonDetMultiThreadedAugmenter", 100.0, Ratio(0.5, 0.4, 0.6), ">=", 1.0)
    smaller = ratio_check("MultiThreadedAugmenter", 900.0, Ratio(0.25, 0.2, 0.3), "<=", 1.0)
    alone = Check("nothing", None, 3.0, (2.0, 4.0), "<=")
    return [Row("transport", "batches/s", 50.0, [slower], 2), Row("memory", "MB", 225.0, [smaller, alone], 2)]


@click.command(cls=Command)
@common_options(["made-up"])
def made_up(names: tuple[str, ...], quick: bool, json_target: Target, plot_file: Path | None) -> None:
    measure_rows("made up", [("made-up", lambda: rows()[0])], quick, json_target, plot_file)


@pytest.mark.parametrize("package", ["engine", "transforms", "training", "nnunet"])
def test_absent_psutil_is_one_line_with_the_cure(package: str) -> None:
    # as where it is not installed: no module of that name is found
    code = (
        "import importlib.util as util, runpy; found = util.find_spec\n"
        "util.find_spec = lambda name, *more: None if name == 'psutil' else found(name, *more)\n"
        f"runpy.run_module('benchmarks.{package}', run_name='__main__')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "the benchmarks need psutil: pip install '.[benchmarks]'\n"


def test_missed_target_fails_a_full_run_and_no_quick_one() -> None:
    full, quick = CliRunner().invoke(made_up, []), CliRunner().invoke(made_up, ["--quick"])
    assert (full.exit_code, quick.exit_code) == (1, 0)
    assert ">= 1 no" in full.stdout
    assert ">= 1 no" not in quick.stdout
    assert "Targets are not judged" in " ".join(quick.stdout.split())  # however wide the terminal is


def test_json_and_plot_are_written(tmp_path: Path) -> None:
    done = CliRunner().invoke(made_up, ["--quick", "--json", "-", "--plot", str(tmp_path / "ratios.png")])
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["rows"][0]["name"] == "transport"
    assert (tmp_path / "ratios.png").read_bytes().startswith(b"\x89PNG")


def test_plot_draws_what_is_better_to_the_right(tmp_path: Path) -> None:
    plot(rows(), "made up", tmp_path / "ratios.svg")
    assert (tmp_path / "ratios.svg").stat().st_size > 5000


@pytest.mark.parametrize("width", [60, 120])
def test_table_fits_and_says_what_a_ratio_is(width: int) -> None:
    shown = io.StringIO()
    show(rows(), Console(file=shown, width=width), "detaug's engine against its peers")
    text = shown.getvalue()
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    assert "(ratio > 1: detaug is faster)" in " ".join(text.split())


def test_peers_are_called_by_their_full_names() -> None:
    assert {"NonDetMultiThreadedAugmenter", "MultiThreadedAugmenter"} <= set(SYSTEMS)
    assert not {"NonDet", "MTA"} & set(SYSTEMS)


def test_row_of_the_engine_runs() -> None:
    done = CliRunner().invoke(engine, ["--quick", "--only", "integers"])
    assert done.exit_code == 0, done.output
    assert "NonDetMultiThreadedAugmenter" in done.stdout


def test_one_command_line_leads_to_all() -> None:
    from benchmarks.__main__ import main

    listed = CliRunner().invoke(main, ["--help"])
    assert listed.exit_code == 0
    for name in ("engine", "nnunet", "training", "transforms"):
        assert f"  {name} " in listed.stdout
    assert "--only" in CliRunner().invoke(main, ["engine", "--help"]).stdout
    assert CliRunner().invoke(main, ["engines"]).exit_code == 2
