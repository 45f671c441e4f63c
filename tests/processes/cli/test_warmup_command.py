"""`detaug warmup` as a user meets it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import detaug

FEW = {
    "__init__.py",
    "ahead.py",
    "cache.py",
    "compiling.py",
    "scalars.py",
    "elementary.py",
    "normals.py",
    "threefry.py",
}


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package with few kernels, which compile in seconds, in a place that can be written to."""
    package = Path(detaug.__file__).parent
    site = tmp_path_factory.mktemp("site")

    def left_out(folder: str, names: list[str]) -> set[str]:
        return {"__pycache__"} if Path(folder) != package / "kernels" else set(names) - FEW

    shutil.copytree(package, site / "detaug", ignore=left_out)
    return site


def warmup(site: Path, home: Path, **environment: str) -> tuple[int, int, Path]:
    """How many kernels were compiled, how many were there, and the folder that is named."""
    inherited = {k: v for k, v in os.environ.items() if k not in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME")}
    done = subprocess.run(
        [sys.executable, "-c", "from detaug.cli import main; main(prog_name='detaug')", "warmup"],
        env={**inherited, "HOME": str(home), "PYTHONPATH": str(site), **environment},
        cwd=site,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = re.search(r"(\d+) kernels: (\d+) compiled, (\d+) already there, in [\d.]+ s\n.* in (.+)\n", done.stdout)
    assert found, done.stdout
    assert int(found[1]) == int(found[2]) + int(found[3])
    assert bool(done.stderr) == (found[2] != "0"), "nothing is said where all is there"
    if done.stderr:
        first = done.stderr.splitlines()[0]
        assert re.match(rf"compiling {found[2]} kernels?, about \d+ s on (an idle core|\d+ idle cores)", first)
    return int(found[2]), int(found[3]), Path(found[4])


@pytest.fixture(scope="module")
def compiled(installation: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[int, Path]:
    """How many kernels the first run compiled, and the folder."""
    home = tmp_path_factory.mktemp("home")
    number, there, folder = warmup(installation, home)
    assert number > 0
    assert there == 0
    assert folder.is_relative_to(installation / "detaug")
    assert not list(home.iterdir())
    return number, folder


def test_second_process_compiles_nothing(installation: Path, compiled: tuple[int, Path], tmp_path: Path) -> None:
    number, folder = compiled
    files = {file: file.stat().st_mtime_ns for file in folder.rglob("*.nb?")}
    assert files
    assert warmup(installation, tmp_path) == (0, number, folder)
    assert {file: file.stat().st_mtime_ns for file in folder.rglob("*.nb?")} == files
    assert not list(tmp_path.iterdir())


def test_kernels_whose_source_changed_are_compiled_anew(
    installation: Path, compiled: tuple[int, Path], tmp_path: Path
) -> None:
    source = installation / "detaug" / "kernels" / "elementary.py"
    before = source.read_text()
    source.write_text(before + "\n# changed\n")
    try:
        # add_normals uses it, those of threefry do not
        assert compiled[0] > 1
        assert warmup(installation, tmp_path)[:2] == (1, compiled[0] - 1)
    finally:
        source.write_text(before)
