"""Compiled kernels work where their cache on disk is full, vanishes, or holds rubbish."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from detaug.kernels import compiling

BODY = """
import os, pathlib, resource, shutil, sys
import numpy as np
from detaug.kernels import compiling
from detaug.kernels.{module} import {name} as first, {other} as second
folder = pathlib.Path(os.environ["NUMBA_CACHE_DIR"])
assert compiling._CACHE_FOLDER == folder / "detaug"
{before}
for each in (first, second):
    each.compile()
    assert each.dispatcher.overloads, "it can be called"
print("compiled", sum(first.dispatcher.stats.cache_misses.values()), sum(second.dispatcher.stats.cache_misses.values()))
print("children are told of nothing again:", os.environ.get("DETAUG_CACHE_WARNING"))
"""

KERNELS = {"module": "intensity", "name": "scale_around", "other": "clamp"}
FAR_TOO_SMALL = 'mount -t tmpfs -o size=64k tmpfs $NUMBA_CACHE_DIR && exec "$@"'


def run(folder: Path, before: str = "", *wrap: str) -> tuple[list[str], list[str]]:
    """What the script prints, and what it logs."""
    folder.mkdir(exist_ok=True)
    root = str(Path(compiling.__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": root, "NUMBA_CACHE_DIR": str(folder)}
    environment.pop("DETAUG_CACHE_WARNING", None)
    command = [*wrap, sys.executable, "-c", BODY.format(before=before, **KERNELS)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines(), done.stderr.splitlines()


def check(printed: list[str], said: list[str], error: str) -> None:
    assert printed == ["compiled 1 1", "children are told of nothing again: 1"]
    assert len(said) == 1, "once, not for each kernel"
    assert error in said[0]
    assert "kept in memory" in said[0]
    assert "NUMBA_CACHE_DIR" in said[0]


def test_full_disk(tmp_path: Path) -> None:
    wrap = ("unshare", "-m", "sh", "-c", FAR_TOO_SMALL, "sh")
    possible = sys.platform == "linux" and os.geteuid() == 0 and shutil.which("unshare") is not None
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    if not possible or subprocess.run([*wrap, "true"], env=environment, capture_output=True, check=False).returncode:
        pytest.skip("to mount a full disk takes root")
    fill = "(folder / 'full').touch()\ntry:\n    (folder / 'full').write_bytes(bytes(2**20))\nexcept OSError:\n    pass"
    check(*run(tmp_path, fill, *wrap), error="No space left on device")


@pytest.mark.slow  # an error of the disk is told as in the test above
def test_files_that_may_not_become_so_large(tmp_path: Path) -> None:
    check(*run(tmp_path, "resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))"), error="File too large")


@pytest.mark.slow
def test_folder_that_vanishes_and_cannot_be_made_again(tmp_path: Path) -> None:
    check(*run(tmp_path / "gone", "shutil.rmtree(folder); folder.touch()"), error="Not a directory")


def test_folder_that_vanishes_is_made_again(tmp_path: Path) -> None:
    printed, said = run(tmp_path / "gone", "shutil.rmtree(folder)")
    assert printed == ["compiled 1 1", "children are told of nothing again: None"]
    assert said == []
    assert list((tmp_path / "gone").rglob("*.nbc"))


def test_cache_that_is_cut_off(tmp_path: Path) -> None:
    run(tmp_path)
    for file in tmp_path.rglob("*.nbc"):
        file.write_bytes(b"")  # as a full disk leaves what was not yet written out when the machine went down
    check(*run(tmp_path), error="EOFError")
