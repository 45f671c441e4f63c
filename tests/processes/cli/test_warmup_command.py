"""`detaug warmup` as a user meets it."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

import detaug
from tests.support.waiting import run_program

#: What compiles in seconds: two kernels, and what they are made of.
NEEDED = (
    "__init__",
    "ahead",
    "cache",
    "compiling",
    "elementary",
    "low_resolution",
    "normals",
    "threefry",
)
FEW = {f"{name}.py" for name in NEEDED}


def warmup(site: Path, home: Path) -> tuple[int, int, Path]:
    """How many kernels were compiled, how many were there, and the folder that is named."""
    inherited = {
        k: v for k, v in os.environ.items() if k not in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME")
    }
    environment = {**inherited, "HOME": str(home), "PYTHONPATH": str(site)}
    command = [sys.executable, "-m", "detaug", "warmup"]
    done = run_program(command, env=environment, cwd=site)
    assert done.returncode == 0, done.stderr
    found = re.search(
        r"(\d+) kernels: (\d+) compiled, (\d+) already there, in [\d.]+ s\n.* in (.+)\n",
        done.stdout,
    )
    assert found, done.stdout
    assert int(found[1]) == int(found[2]) + int(found[3])
    assert bool(done.stderr) == (found[2] != "0"), "nothing is said where all is there"
    if done.stderr:
        first = done.stderr.splitlines()[0]
        assert re.match(
            rf"compiling {found[2]} kernels?, about \d+ s on (an idle core|\d+ idle cores)", first
        )
    return int(found[2]), int(found[3]), Path(found[4])


def test_a_kernel_is_compiled_once_for_its_source(tmp_path: Path) -> None:
    package, site, home = Path(detaug.__file__).parent, tmp_path / "site", tmp_path / "home"

    def left_out(folder: str, names: list[str]) -> set[str]:
        """All but a few kernels, which compile in seconds."""
        return {"__pycache__"} if Path(folder) != package / "kernels" else set(names) - FEW

    shutil.copytree(package, site / "detaug", ignore=left_out)
    home.mkdir()
    number, there, folder = warmup(site, home)
    assert (number > 1, there) == (True, 0)
    assert folder.is_relative_to(site / "detaug")
    files = {file: file.stat().st_mtime_ns for file in folder.rglob("*.nb?")}
    assert warmup(site, home) == (0, number, folder)
    assert files == {file: file.stat().st_mtime_ns for file in folder.rglob("*.nb?")}
    with (site / "detaug" / "kernels" / "elementary.py").open("a") as source:
        source.write("\n# changed\n")  # add_normals uses it, the other kernel does not
    assert warmup(site, home)[:2] == (1, number - 1)
    assert not list(home.iterdir())
