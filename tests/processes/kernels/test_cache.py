"""Where compiled kernels are kept when the usual places cannot be written to, are full, vanish, or
hold rubbish.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from detaug.kernels import cache
from tests.support.preloaded import WITH_NUMBA, run_code

WHERE_IT_IS = """
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
    """The place for temporary files, with the usual cache folder being a file: nothing can be made
    below it.
    """
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


@pytest.fixture
def chosen(temporary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that NUMBA_CACHE_DIR leads to; its parent is there."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "chosen"))
    monkeypatch.setattr(cache, "_has_warned", threading.Event())
    (tmp_path / "chosen").mkdir()
    return tmp_path / "chosen" / "detaug"


def test_a_new_folder_is_closed_to_others_and_an_own_one_is_closed(chosen: Path) -> None:
    assert cache.cache_folder() == chosen
    assert chosen.stat().st_mode & 0o777 == 0o700
    chosen.chmod(0o755)
    assert cache.cache_folder() == chosen
    assert chosen.stat().st_mode & 0o777 == 0o700


def test_an_own_link_is_followed(chosen: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    chosen.symlink_to(tmp_path / "elsewhere")
    assert cache.cache_folder() == chosen


def _by_another_user(folder: Path) -> None:
    folder.mkdir()
    os.chown(folder, 54321, 54321)


def _link_by_another_user(folder: Path) -> None:
    target = folder.with_name("target")
    target.mkdir()
    folder.symlink_to(target)
    os.chown(folder, 54321, 54321, follow_symlinks=False)


def _open_to_the_group(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o775)


def _below_a_folder_of_all(folder: Path) -> None:
    folder.mkdir()
    folder.parent.chmod(0o777)


@pytest.mark.parametrize(
    ("plant", "danger"),
    [
        (_by_another_user, "it belongs to another user"),
        (_link_by_another_user, "it belongs to another user"),
        (_open_to_the_group, "other users can write to it (mode 0775)"),
        (_below_a_folder_of_all, "all users can write to "),
    ],
)
def test_a_folder_in_which_others_could_plant_code_is_passed_over_with_a_word(
    chosen: Path,
    temporary: Path,
    caplog: pytest.LogCaptureFixture,
    plant: Callable[[Path], None],
    danger: str,
) -> None:
    if "another_user" in plant.__name__ and os.geteuid() != 0:
        pytest.skip("root alone can give a folder to somebody else")
    plant(chosen)
    before = chosen.lstat().st_mode
    private = temporary / f"detaug-{os.geteuid()}"
    for _ in range(2):
        assert cache.cache_folder() == private
    (record,) = caplog.records
    assert danger in record.getMessage()
    assert f"They are kept in {private}" in record.getMessage()
    assert list(chosen.iterdir()) == []
    assert chosen.lstat().st_mode == before, "nothing is changed there"


def test_a_planted_folder_in_the_users_cache_is_passed_over(
    chosen: Path, temporary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NUMBA_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "chosen"))
    monkeypatch.setattr(cache, "_PACKAGE_FOLDER", tmp_path / "file" / "compiled")
    _open_to_the_group(chosen)
    assert cache.cache_folder() == temporary / f"detaug-{os.geteuid()}"


def test_without_any_place_there_is_none(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(temporary / "absent"))
    assert cache.cache_folder() is None


def test_what_the_read_only_package_holds_is_not_compiled_again(tmp_path: Path) -> None:
    def run(*read_only: str, **places: str) -> list[str]:
        done = run_code(
            WHERE_IT_IS,
            *read_only,
            folder=tmp_path,
            environment={**os.environ, **places},
            interpreter=WITH_NUMBA,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    folder, _, _ = run()  # compiled into the package, or found there
    if Path(folder) != cache._PACKAGE_FOLDER:
        pytest.skip("the package's own folder is not in use here")
    there, misses, hits = run(folder, NUMBA_CACHE_DIR=str(tmp_path))
    assert there == str(tmp_path / "detaug")
    assert (misses, hits) == ("0", "1")
    _, misses, hits = run(NUMBA_CACHE_DIR=str(tmp_path / "chosen"))
    assert (misses, hits) == (
        "1",
        "0",
    )  # a folder was chosen where the package's own could be used: nothing is copied


COMPILED_WITHOUT_A_CACHE = """
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
"""

KERNELS = {"module": "intensity", "name": "scale_around", "other": "clamp"}


def run(folder: Path, before: str = "") -> tuple[list[str], list[str]]:
    """What the script prints, and what it logs."""
    folder.mkdir(exist_ok=True)
    done = run_code(
        COMPILED_WITHOUT_A_CACHE.format(before=before, **KERNELS),
        folder=folder.parent,  # the program may remove it
        environment={**os.environ, "NUMBA_CACHE_DIR": str(folder)},
        interpreter=WITH_NUMBA,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines(), done.stderr.splitlines()


def check(printed: list[str], said: list[str], error: str) -> None:
    assert printed == ["compiled 1 1"]
    assert len(said) == 1, "once, not for each kernel"
    assert error in said[0]
    assert "kept in memory" in said[0]
    assert "NUMBA_CACHE_DIR" in said[0]


def test_files_that_may_not_become_so_large(tmp_path: Path) -> None:
    check(
        *run(tmp_path, "resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))"),
        error="File too large",
    )


def test_folder_that_vanishes_is_made_again(tmp_path: Path) -> None:
    printed, said = run(tmp_path / "gone", "shutil.rmtree(folder)")
    assert printed == ["compiled 1 1"]
    assert said == []
    assert list((tmp_path / "gone").rglob("*.nbc"))


def test_cache_that_is_cut_off(tmp_path: Path) -> None:
    run(tmp_path)
    for file in tmp_path.rglob("*.nbc"):
        file.write_bytes(
            b""
        )  # as a full disk leaves what was not yet written out when the machine went down
    check(*run(tmp_path), error="EOFError")
