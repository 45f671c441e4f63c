"""Whoever reads finds the old text or the new one."""

from __future__ import annotations

import os
import resource
import signal
from pathlib import Path

import pytest

from detaug.reports.atomic_files import whole_file


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
