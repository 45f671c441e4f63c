"""`detaug demo` as a user meets it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from detaug.cli import main
from tests.support.preloaded import run_code


def detaug(*arguments: str) -> subprocess.CompletedProcess[str]:
    code = "from detaug.cli import main; main(prog_name='detaug')"
    return run_code(code, *arguments, folder=Path.cwd(), environment=os.environ)


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
    from detaug.demo import (
        run,
    )  # with batchgenerators' transforms, which every fork of all other tests would have as well

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
