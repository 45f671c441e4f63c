"""The user's folder that compiled kernels are kept in if the package's own folder is read-only."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pytest

from detaug.kernels import cache

IN_HOME = {"HOME": "{home}"}


@pytest.mark.parametrize(
    ("platform", "environment", "expected"),
    [
        ("linux", IN_HOME, "home/.cache/detaug"),
        ("linux", {**IN_HOME, "XDG_CACHE_HOME": "{home}/caches"}, "home/caches/detaug"),
        ("linux", {**IN_HOME, "XDG_CACHE_HOME": " "}, "home/.cache/detaug"),
        ("darwin", IN_HOME, "home/Library/Caches/detaug"),
        ("darwin", {**IN_HOME, "XDG_CACHE_HOME": "{home}/caches"}, "home/caches/detaug"),
        ("win32", {"LOCALAPPDATA": "{home}/AppData/Local"}, "home/AppData/Local/detaug"),
    ],
)
def test_it_is_among_the_users_caches(
    platform: str,
    environment: dict[str, str],
    expected: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read_only(tmp_path, monkeypatch, environment)
    monkeypatch.setattr(sys, "platform", platform)
    assert cache.cache_folder() == tmp_path / expected


@pytest.mark.parametrize("environment", [{"HOME": "nowhere"}, {"XDG_CACHE_HOME": "caches"}])
def test_a_place_that_depends_on_the_current_folder_is_not_used(
    environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_only(tmp_path, monkeypatch, environment)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = cache.cache_folder()
    assert folder is not None
    assert folder.parent == tmp_path


def read_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]) -> None:
    """Put the package into a read-only folder and set these variables alone.

    ``{home}`` in a variable stands for the user's folder.
    """
    (tmp_path / "file").touch()
    monkeypatch.setattr(cache, "_PACKAGE_FOLDER", tmp_path / "file" / "compiled")
    for name in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME", "LOCALAPPDATA", "HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value.format(home=tmp_path / "home"))
