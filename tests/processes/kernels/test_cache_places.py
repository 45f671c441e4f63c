"""Where compiled kernels are kept when the usual places cannot be written to."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from detaug.kernels import cache, compiling

SCRIPT = """
import pathlib, sys

if sys.argv[1:]:  # Root may write anywhere: what a read-only folder answers is said in the system's place.
    touch = pathlib.Path.touch
    def refuse(path, *args, **kwargs):
        if sys.argv[1] in str(path):
            raise OSError(30, "Read-only file system")
        touch(path, *args, **kwargs)
    pathlib.Path.touch = refuse
from detaug.kernels import cache, compiling
from detaug.kernels.normals import add_normals
add_normals.compile()
stats = add_normals.dispatcher.stats
print(cache.cache_folder(), sum(stats.cache_misses.values()), sum(stats.cache_hits.values()))
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The place for temporary files, with the usual cache folder being a file: nothing can be made below it."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "file"))
    (tmp_path / "file").touch()
    return folder


def test_folder_among_temporary_files_is_closed_to_others(temporary: Path) -> None:
    folder = cache.cache_folder()
    assert folder == temporary / f"detaug-{os.geteuid()}"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert cache.cache_folder() == folder


def test_folder_that_others_could_write_to_is_not_used(temporary: Path) -> None:
    (temporary / f"detaug-{os.geteuid()}").mkdir(mode=0o777)
    (temporary / f"detaug-{os.geteuid()}").chmod(0o777)
    assert cache.cache_folder() is None


def test_link_that_somebody_laid_is_not_followed(temporary: Path, tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir(mode=0o700)
    (temporary / f"detaug-{os.geteuid()}").symlink_to(tmp_path / "theirs")
    assert cache.cache_folder() is None


def test_without_any_place_there_is_none(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(temporary / "absent"))
    assert cache.cache_folder() is None


def test_what_the_read_only_package_holds_is_not_compiled_again(tmp_path: Path) -> None:
    def run(*read_only: str, **places: str) -> list[str]:
        environment = {**os.environ, "PYTHONPATH": str(Path(compiling.__file__).parents[2]), **places}
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, *read_only], env=environment, capture_output=True, text=True, check=True
        )
        return done.stdout.split()

    folder, _, _ = run()  # compiled into the package, or found there
    if Path(folder) != cache._PACKAGE_FOLDER:
        pytest.skip("the package's own folder is not in use here")
    there, misses, hits = run(folder, NUMBA_CACHE_DIR=str(tmp_path))
    assert there == str(tmp_path / "detaug")
    assert (misses, hits) == ("0", "1")
    _, misses, hits = run(NUMBA_CACHE_DIR=str(tmp_path / "chosen"))
    assert (misses, hits) == ("1", "0")  # a folder was chosen where the package's own could be used: nothing is copied
