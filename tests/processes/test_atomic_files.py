"""Whoever reads finds the old text or the new one."""

from __future__ import annotations

import os
import resource
import signal
import stat
from pathlib import Path

import pytest

from detaug.system.atomic_files import remove_unfinished, whole_file
from tests.support.waiting import exit_code, wait_readable


def write_text(path: Path, text: str) -> None:
    with whole_file(path) as file:
        file.write(text.encode())


def test_text_is_written_and_nothing_else_left(tmp_path: Path) -> None:
    write_text(tmp_path / "file", "µm\n")
    assert (tmp_path / "file").read_bytes() == b"\xc2\xb5m\n"
    assert os.listdir(tmp_path) == ["file"]


def test_old_text_stays_when_the_new_one_cannot_be_written(tmp_path: Path) -> None:
    write_text(tmp_path / "file", "old")
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limit[1]))
        with pytest.raises(OSError, match="large"):
            write_text(tmp_path / "file", "new" * 1000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, before)
    assert (tmp_path / "file").read_text() == "old"
    assert os.listdir(tmp_path) == ["file"]


def test_reader_never_sees_a_part(tmp_path: Path) -> None:
    texts = {"a" * 300_000, "b" * 300_000}
    write_text(tmp_path / "file", "a" * 300_000)
    writer = os.fork()
    if writer == 0:
        for number in range(100):
            write_text(tmp_path / "file", "ab"[number % 2] * 300_000)
        os._exit(0)
    while os.waitpid(writer, os.WNOHANG)[0] == 0:
        assert (tmp_path / "file").read_text() in texts


def test_a_file_that_is_replaced_leaves_its_mode(tmp_path: Path) -> None:
    write_text(tmp_path / "new", "text")
    assert (tmp_path / "new").stat().st_mode & 0o111 == 0
    for mode in (0o600, 0o640, 0o664):
        (tmp_path / "file").write_text("old")
        (tmp_path / "file").chmod(mode)
        write_text(tmp_path / "file", "new")
        assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == mode


def test_a_link_stays_and_what_it_leads_to_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_text("old")
    (tmp_path / "link").symlink_to("folder/file")
    (tmp_path / "to_nothing").symlink_to("folder/made")
    for name in ("link", "to_nothing"):
        write_text(tmp_path / name, "new")
        assert (tmp_path / name).is_symlink()
        assert (tmp_path / name).read_text() == "new"
    assert sorted(os.listdir(tmp_path / "folder")) == ["file", "made"]


def test_what_is_no_regular_file_is_not_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "folder"):
        with pytest.raises(OSError, match="no regular file"):
            write_text(tmp_path / name, "text")
    assert sorted(os.listdir(tmp_path)) == ["folder", "pipe"]


def test_the_name_until_then_cannot_be_foreseen(tmp_path: Path) -> None:
    """A link that somebody lays there would be written through."""
    names: set[str] = set()
    for _ in range(3):
        with whole_file(tmp_path / "file"):
            names |= {name for name in os.listdir(tmp_path) if name != "file"}
    assert len(names) == 3


def test_remains_of_a_writer_that_was_killed_are_removed_and_no_others(tmp_path: Path) -> None:
    def wait_within_the_block() -> None:
        with whole_file(tmp_path / "file") as file:
            file.write(b"a part")
            file.flush()
            os.write(is_writing, b".")
            signal.pause()

    told, is_writing = os.pipe()
    writer = os.fork()
    if writer == 0:
        try:
            wait_within_the_block()
        finally:
            os._exit(1)
    os.close(is_writing)
    wait_readable(told, "it is being written")
    assert os.read(told, 1) == b"."
    os.close(told)
    (tmp_path / "mine.partial").touch()
    (partial,) = set(os.listdir(tmp_path)) - {"mine.partial"}
    (tmp_path / ".detaug-link.partial").symlink_to("mine.partial")
    try:
        remove_unfinished(tmp_path)
        assert (tmp_path / partial).read_bytes() == b"a part", "it is being written"
    finally:
        os.kill(writer, signal.SIGKILL)
        exit_code(writer, "the killed writer has ended")
    remove_unfinished(tmp_path)
    assert sorted(os.listdir(tmp_path)) == [".detaug-link.partial", "mine.partial"]
