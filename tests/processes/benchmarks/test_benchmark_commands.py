"""`python -m benchmarks.…` as a reader of the README meets it."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from PIL import Image
from rich.console import Console

from benchmarks.command import common_options, measure_rows
from benchmarks.engine.systems import SYSTEMS, installed
from benchmarks.report import Check, Row, ratio_check, show
from benchmarks.tables.__main__ import (
    BLOCK,
    COMPUTED,
    PAGES,
    PICTURE,
    RESULTS,
    TABLES,
    drawn,
    kept,
    table_of,
    with_tables,
)
from detaug.bench.measuring import Ratio
from detaug.cli.options import Command

REPOSITORY = Path(__file__).parents[3]


def rows() -> list[Row]:
    slower = ratio_check("NonDetMultiThreadedAugmenter", 100.0, Ratio(0.5, 0.4, 0.6), ">=", 1.0)
    smaller = ratio_check("MultiThreadedAugmenter", 900.0, Ratio(0.25, 0.2, 0.3), "<=", 1.0)
    alone = Check("nothing", None, 3.0, (2.0, 4.0), "<=")
    return [
        Row("transport", "batches/s", 50.0, [slower], 2),
        Row("memory", "MB", 225.0, [smaller, alone], 2),
    ]


@click.command(cls=Command)
@common_options(["made-up"])
def made_up(names: tuple[str, ...], quick: bool, json_file: Path | None) -> None:
    measure_rows("made up", [("made-up", lambda: rows()[0])], quick, json_file)


def test_an_absent_library_is_one_line_with_the_cure() -> None:
    # as where it is not installed: no module of that name is found
    code = (
        "import importlib.util as util, runpy; found = util.find_spec\n"
        "util.find_spec = lambda name, *more: None if name == 'nilearn' else found(name, *more)\n"
        "runpy.run_module('benchmarks.nnunet', run_name='__main__')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "the benchmarks need nilearn: pip install '.[benchmarks]'\n"


def test_missed_target_fails_a_full_run_and_no_quick_one(tmp_path: Path) -> None:
    full, quick = CliRunner().invoke(made_up, []), CliRunner().invoke(made_up, ["--quick"])
    assert (full.exit_code, quick.exit_code) == (1, 0)
    CliRunner().invoke(made_up, ["--quick", "--json", str(tmp_path / "found.json")])
    assert json.loads((tmp_path / "found.json").read_text())["rows"][0]["name"] == "transport"
    assert ">= 1 no" in full.stdout
    assert ">= 1 no" not in quick.stdout
    assert "Targets are not judged" in " ".join(
        quick.stdout.split()
    )  # however wide the terminal is


@pytest.mark.parametrize("width", [60, 120])
def test_table_fits_and_says_what_a_ratio_is(width: int) -> None:
    shown = io.StringIO()
    show(rows(), Console(file=shown, width=width), "detaug's engine against its peers")
    text = shown.getvalue()
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    assert "(ratio > 1: detaug is faster)" in " ".join(text.split())


def test_systems_that_are_not_installed_are_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "Grain" in installed(SYSTEMS)
    monkeypatch.setitem(sys.modules, "grain", None)  # then it is neither found nor imported
    assert installed(SYSTEMS) == [name for name in SYSTEMS if name != "Grain"]


def test_the_pages_tables_are_what_the_kept_results_give() -> None:
    found = []
    for file in PAGES:
        page = file.read_text(encoding="utf-8")
        assert with_tables(page, kept()) == page, "python -m benchmarks tables"
        blocks = [each["name"] for each in BLOCK.finditer(page)]
        assert len(blocks) == page.count("<!-- table") == page.count("<!-- end of the table"), (
            file.name
        )
        found += blocks
    assert set(found) == {*TABLES, *COMPUTED}


def test_the_front_pages_picture_is_of_the_same_results() -> None:
    assert Image.open(PICTURE).info["Comment"] == drawn(kept()), "python -m benchmarks tables"
    assert drawn(kept()[:1]) != drawn(kept())


#: A number that is a multiple or a share; not the × of a shape (128×128, 2 × 64).
FIGURE = re.compile(r"\d\s?(?:×(?!\s?\d)|x\b|%|times as\b|times faster|times slower)")


@pytest.mark.parametrize("file", PAGES, ids=lambda file: file.name)
def test_no_ratio_or_share_is_typed_by_hand(file: Path) -> None:
    page = BLOCK.sub("", file.read_text(encoding="utf-8"))
    assert [line for line in page.splitlines() if FIGURE.search(line)] == []


def test_every_line_of_a_table_has_a_machine() -> None:
    results = kept()
    assert (
        len({result["environment"]["cpu"] for result in results})
        == len(results)
        == len(list(RESULTS.glob("*.json")))
    )
    for name in ("headline", "loader", "pipelines"):
        assert table_of(results, name).count("\n") == len(TABLES[name]) + 2
    assert table_of(results, "machines").count("\n") == len(results) + 2
    assert table_of(results, "cores").count("\n") >= 3
    assert len(re.findall(r"^\| [AH]100", table_of(results, "nodes"), re.MULTILINE)) >= 6


@pytest.mark.slow
def test_the_headlines_are_measured_by_one_command(tmp_path: Path) -> None:
    from benchmarks.__main__ import main

    before = {file: file.read_bytes() for file in RESULTS.iterdir()}
    done = CliRunner().invoke(main, ["headline", "--quick", "--json", str(tmp_path / "found.json")])
    assert done.exit_code == 0, done.output
    measured = {row["name"] for row in json.loads((tmp_path / "found.json").read_text())["rows"]}
    assert measured == {name for name, *_ in TABLES["headline"]}
    assert {file: file.read_bytes() for file in RESULTS.iterdir()} == before, (
        "short rounds are not kept"
    )
