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


def test_command_line_loads_no_heavy_library_before_it_is_told_what_to_do() -> None:
    check = (
        "import sys; from detaug.cli import main; main(['doctor', '--help'], standalone_mode=False); "
        "print(sorted({'torch', 'numba', 'scipy', 'batchgenerators'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, timeout=120, check=True)
    assert "--strict" in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"


def test_missing_nilearn_is_said_with_the_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    from detaug.demo import mri

    mri.load_template.cache_clear()
    monkeypatch.setitem(sys.modules, "nilearn", None)
    result = CliRunner().invoke(main, ["demo"])
    assert result.exit_code == 2
    assert "pip install 'detaug[demo]'" in result.output


def test_demo_shows_that_every_run_of_ours_gives_the_same_batches(tmp_path: Path) -> None:
    pytest.importorskip("nilearn")
    file = tmp_path / "demo.json"
    done = detaug("demo", "--batches", "12", "--json", str(file))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all 4 runs agree" in done.stdout

    written = json.loads(file.read_text())
    assert written["deterministic"] is True
    ours = [row for row in written["runs"] if row["augmenter"] == "DeterministicAugmenter"]
    assert [row["processes"] for row in ours] == [0, 2, 2, 2]
    assert len({row["fingerprint"] for row in ours}) == 1
    killed, resumed = ours[2:]
    assert killed["kill"]
    assert killed["pids"] >= 2
    assert killed["notices"], "the death of a worker is said"
    assert resumed["resume"]
    assert resumed["pids"] >= 2, "made by workers of two augmenters"
