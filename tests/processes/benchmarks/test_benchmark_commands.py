"""`python -m benchmarks.…` as a reader of the README meets it."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from rich.console import Console

from benchmarks import ratio_picture
from benchmarks.command import common_options, measure_rows
from benchmarks.engine.__main__ import main as engine
from benchmarks.engine.systems import SYSTEMS, installed
from benchmarks.measure import Ratio
from benchmarks.nodes.__main__ import main as nodes_command
from benchmarks.nodes.needs import GPUS, Gpu, Machines, cores, gigabytes_per_second, nodes
from benchmarks.plot import plot
from benchmarks.report import Check, Row, ratio_check, show
from benchmarks.tables.__main__ import PAGES, kept, table_of, with_table
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


@pytest.mark.parametrize(
    ("row", "workers"),
    [
        ("local-ceiling", "processes"),
        pytest.param("cluster-ceiling", "actors", marks=pytest.mark.slow),
    ],
)
def test_a_ceiling_is_shown_in_messages_and_bytes_with_where_it_saturates(row: str, workers: str) -> None:
    if row == "cluster-ceiling":
        pytest.importorskip("ray")
    done = CliRunner().invoke(engine, ["--quick", "--only", row], env={"COLUMNS": "200"})
    assert done.exit_code == 0, done.output
    assert f"4 {workers}, message-only batches/s" in done.stdout
    assert f"4 {workers}, GB/s in batches of 25 MB" in done.stdout
    assert done.stdout.count("(saturated)") == 2


class TestNodes:
    def test_cores_and_nodes_follow_from_measured_seconds(self) -> None:
        gpu = Gpu("made up", 0.1, "")
        machines = Machines(own_cores=4, busy_cores=1, node_cores=16)
        assert cores(1.0, gpu, machines) == pytest.approx(10)
        assert cores(1.0, gpu, replace(machines, slowdown=2.0)) == pytest.approx(20)
        assert nodes(1.0, gpu, machines) == 1, "7 cores are missing"
        assert nodes(1.0, gpu, machines, gpus=8) == 4, "56 are"
        assert nodes(0.3, gpu, machines) == nodes(0.3, gpu, machines, gpus=8) == 0, "the GPU's own are enough"
        assert nodes(1.9, gpu, machines) == 1, "16 are missing: a whole node, and no more"
        assert nodes(1.91, gpu, machines) == 2
        assert nodes(0.1, gpu, replace(machines, own_cores=0)) == 1
        assert gigabytes_per_second(25e6, gpu, 8) == pytest.approx(2.0)

    def test_the_table_shows_every_assumption(self, tmp_path: Path) -> None:
        given = ["--measured", "0.821", "0.103", "--gpu", "H200=60", "--slowdown", "2.5", "--node-cores", "32"]
        arguments = [*given, "--json", str(tmp_path / "nodes.json")]
        done = CliRunner().invoke(nodes_command, arguments, env={"COLUMNS": "200"})
        assert done.exit_code == 0, done.output
        text = " ".join(done.stdout.split())
        for said in (
            "0.821 CPU seconds with nnU-Net's loader and transforms, 0.103 with detaug's (given); all of it 2.5 times as long",
            "4 of its own for each GPU, of which the training takes 1; a CPU node has 32",
            "A100: step of 131 ms, measured by a user",
            "H100, at least: step of 80 ms, assumed",
            "H200: step of 60 ms, given",
        ):
            assert said in text
        rows = json.loads((tmp_path / "nodes.json").read_text())["rows"]
        assert [row["gpu"] for row in rows] == ["A100", "H100, at least", "H100, at most", "H200"]
        assert rows[0]["cores"]["nnU-Net"] == pytest.approx(2.5 * 0.821 / 0.131)

    def test_a_gpu_without_a_number_is_refused(self) -> None:
        done = CliRunner().invoke(nodes_command, ["--measured", "1", "1", "--gpu", "H200"])
        assert done.exit_code == 2
        assert "'H200' is not like H200=60" in done.output

    def test_the_documented_table_is_what_the_command_computes(self) -> None:
        page = (REPOSITORY / "docs" / "cluster.md").read_text(encoding="utf-8")
        documented = [line for line in page.splitlines() if re.match(r"\| (A100|H100)", line)]
        assert len(documented) == 6
        expected = []
        for slowdown in (1.0, 2.5):
            machines = Machines(slowdown=slowdown)
            for gpu in GPUS:
                seconds = 0.821, 0.103
                numbers = [f"{cores(each, gpu, machines):.1f}" for each in seconds]
                numbers += [str(nodes(each, gpu, machines, gpus)) for gpus in (1, 8) for each in seconds]
                expected.append(f"| {gpu.name} ({1e3 * gpu.step:.0f} ms) | {slowdown:g} | {' | '.join(numbers)} |")
        assert documented == expected


def test_row_of_the_engine_runs() -> None:
    done = CliRunner().invoke(engine, ["--quick", "--only", "heavy-tail-empty"])
    assert done.exit_code == 0, done.output
    assert "NonDetMultiThreadedAugmenter" in done.stdout


def test_one_command_line_leads_to_all() -> None:
    from benchmarks.__main__ import main

    listed = CliRunner().invoke(main, ["--help"])
    assert listed.exit_code == 0
    for name in ("engine", "nnunet", "nodes", "tables", "training", "transforms"):
        assert f"  {name} " in listed.stdout
    assert "--only" in CliRunner().invoke(main, ["engine", "--help"]).stdout
    assert CliRunner().invoke(main, ["engines"]).exit_code == 2


def test_the_front_pages_ratios_are_drawn_from_results_and_kept_beside_the_picture(tmp_path: Path) -> None:
    name, (shown, against) = next(iter(ratio_picture.ROWS.items()))
    check = {"against": against, "theirs": 50.0, "value": 10.0, "spread": [9.0, 11.0], "relation": ">=", "bound": None}
    row = {
        "name": name,
        "unit": "ms",
        "ours": 5.0,
        "repeats": 3,
        "settings": {},
        "cores_elsewhere": 0.1,
        "details": {"a": 1},
    }
    others = [{**check, "against": "someone else"}, check]
    result = {
        "environment": {"cpu": "a CPU"},
        "rows": [{**row, "checks": others}, {**row, "name": "another", "checks": []}],
    }
    (tmp_path / "results.json").write_text(json.dumps(result))
    ratio_picture.main(tmp_path / "a.png", [tmp_path / "results.json"])
    kept = json.loads((tmp_path / "a.json").read_text())
    assert ratio_picture.bars(kept["rows"]) == [ratio_picture.Bar(shown, against.split(",")[0], 10.0, 9.0, 11.0)]
    assert kept["environment"] == {"cpu": "a CPU"}
    ratio_picture.main(tmp_path / "b.png", [tmp_path / "a.json"])
    assert (tmp_path / "b.json").read_bytes() == (tmp_path / "a.json").read_bytes()
    assert (tmp_path / "b.png").stat().st_size > 5000
    with pytest.raises(SystemExit, match="none of the rows that are drawn is in"):
        ratio_picture.main(tmp_path / "c.png", [])


def test_the_front_pages_ratios_are_rows_that_the_benchmarks_still_have() -> None:
    kept = json.loads((Path(ratio_picture.__file__).parents[1] / "docs/images/ratios.json").read_text(encoding="utf-8"))
    drawn = ratio_picture.bars(kept["rows"])
    assert len(drawn) == len(kept["rows"]) >= 4
    assert all(bar.lowest <= bar.ratio <= bar.highest for bar in drawn)


def test_systems_that_are_not_installed_are_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "Grain" in installed(SYSTEMS)
    monkeypatch.setitem(sys.modules, "grain", None)  # then it is neither found nor imported
    assert installed(SYSTEMS) == [name for name in SYSTEMS if name != "Grain"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "row", "absent", "shown"),
    [
        ("engine", "transport", "grain", "MultiThreadedAugmenter"),
        ("transforms", "shear-translation", "monai", "shear and translation"),
    ],
)
def test_an_absent_peer_is_left_out_and_named(command: str, row: str, absent: str, shown: str) -> None:
    # as where it is not installed: neither found, nor imported, nor known by its version
    code = (
        "import importlib.metadata as metadata, importlib.util as util, sys\n"
        "known, found = metadata.version, util.find_spec\n"
        "def version(name):\n"
        f"    if name == {absent!r}: raise metadata.PackageNotFoundError(name)\n"
        "    return known(name)\n"
        "metadata.version = version\n"
        f"util.find_spec = lambda name, *more: None if name == {absent!r} else found(name, *more)\n"
        f"sys.modules[{absent!r}] = None\n"
        "from benchmarks.__main__ import main\n"
        f"main([{command!r}, '--quick', '--only', {row!r}])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert shown in done.stdout
    assert f"Not installed, and left out where they are peers: {absent}." in done.stdout


def test_the_pages_table_is_what_the_kept_results_give() -> None:
    table = table_of(kept())
    assert "4.2× (4.0–4.4) Intel Xeon, family 6, model 207; 5.5×" in table
    for name in PAGES:
        page = (REPOSITORY / name).read_text(encoding="utf-8")
        assert with_table(page, table) == page, "python -m benchmarks tables"


def test_a_table_has_the_lowest_machine_first_and_the_latest_result_of_each() -> None:
    def result(cpu: str, date: str | None, value: float) -> dict[str, object]:
        check = {"against": "NonDetMultiThreadedAugmenter", "value": value, "spread": [value - 1, value + 1]}
        return {"environment": {"cpu": cpu, "date": date}, "rows": [{"name": "transport", "checks": [check]}]}

    made = table_of([result("A", "2026-02-01", 3.0), result("A", None, 1.0), result("B", "2026-01-01", 2.0)])
    assert made.splitlines()[2].endswith("| 2.0× (1.0–3.0) B; 3.0× (2.0–4.0) A |")
    assert len(made.splitlines()) == 3
