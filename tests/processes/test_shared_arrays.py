"""Arrays in files that processes share, with processes that are killed, with several at once, and with full disks."""

from __future__ import annotations

import os
import resource
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from detaug.nnunet.loading.shared_arrays import NoRoom, add, files_in, mapped

SHAPE = (1, 33, 8, 8)
EVERYTHING = 10**9
SYSTEM = {"posix", "_io", "fcntl", "mmap"}


def array(number: int) -> np.ndarray:
    return np.random.default_rng(number).normal(size=SHAPE).astype(np.float32)


def in_child(function: Callable[[], object]) -> int:
    """The exit code of a fork; minus the signal, if one killed it."""
    child = os.fork()
    if child == 0:
        try:
            function()
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def add_and_be_killed(file: Path, call: int) -> None:
    """Killed before the given call of a function that may change a file or a lock; between two of them nothing changes."""
    calls = 0

    def count(_: Any, event: str, function: Any) -> None:
        nonlocal calls
        if event == "c_call" and {function.__module__, type(function.__self__).__module__} & SYSTEM:
            calls += 1
            if calls == call:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.setprofile(count)
    add(file, array(0), EVERYTHING, lambda: True)


def test_a_writer_that_is_killed_anywhere_leaves_all_or_nothing(tmp_path: Path) -> None:
    file, call, states = tmp_path / "0.npy", 0, set()
    while True:
        call += 1
        ended = in_child(partial(add_and_be_killed, file, call))
        assert ended in (0, -signal.SIGKILL)
        found = mapped(file)
        states.add(found is not None)
        if found is None:
            found = add(file, array(0), EVERYTHING, lambda: True)
        assert found is not None
        assert np.array_equal(found, array(0))
        assert {each.name for each in tmp_path.iterdir()} == {"0.npy", "lock"}
        file.unlink()
        if ended == 0:
            break
    assert call > 20, "all calls were counted"
    assert states == {False, True}


def test_many_writers_stay_within_the_limit_together(tmp_path: Path) -> None:
    size = 128 + array(0).nbytes
    limit = 5 * size

    def work(seed: int) -> None:
        for number in np.random.default_rng(seed).integers(0, 8, 60):
            with suppress(NoRoom):
                found = mapped(tmp_path / f"{number}.npy")
                if found is None:
                    found = add(tmp_path / f"{number}.npy", array(number), limit, lambda: True)
                assert found is None or np.array_equal(found, array(number))
            assert sum(state.st_size for state in files_in(tmp_path).values()) <= limit

    children = []
    for seed in range(4):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                work(seed)
                code = 0
            finally:
                os._exit(code)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
    assert len(list(tmp_path.glob("*.npy"))) == 5


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such limits")
def test_a_disk_that_is_full_leaves_nothing(tmp_path: Path) -> None:
    def write() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        with pytest.raises(OSError, match="File too large"):
            add(tmp_path / "0.npy", array(0), EVERYTHING, lambda: True)

    assert in_child(write) == 0
    assert [file.name for file in tmp_path.iterdir()] == ["lock"]
