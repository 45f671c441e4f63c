"""A worker that hangs is named with its batch, and what the kernel says of it; one that hangs for
too long is replaced.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from detaug import LocalProcesses
from detaug.engine.local import stall_watch
from tests.processes.engine.misbehaving import Sleepy, WritesOnce
from tests.support.augmenters import Maker
from tests.support.comparing import fingerprints_of, take
from tests.support.loaders import RandomLoader, RandomSampler
from tests.support.processes import wait_until
from tests.support.waiting import run_program
from tests.support.witness import WITNESS

pytestmark = pytest.mark.timeout(90)


def test_without_a_timeout_a_warning_names_batch_worker_and_time(
    make: Maker, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stall_watch, "SLOW_SECONDS", 0.5)
    transform = Sleepy(4, str(tmp_path / "slept"), seconds=2.5)
    expected = fingerprints_of(take(make(RandomLoader(), None, 0, seed=2), 8))
    batches = take(make(RandomLoader(), transform, 1, seed=2), 8)
    assert fingerprints_of(batches) == expected
    warnings = [r.getMessage() for r in caplog.records if "has been making" in r.getMessage()]
    assert warnings
    pid = batches[0][WITNESS]["pid"]
    for words in (f"(pid {pid})", "epoch 0, step 4", f"py-spy dump --pid {pid} shows where it is"):
        assert words in warnings[0]
    assert re.search(r"for [012] s", warnings[0])


def test_stopped_worker_is_said_to_be_stopped(
    make: Maker, caplog: pytest.LogCaptureFixture
) -> None:
    expected = fingerprints_of(take(make(RandomSampler(), None, 0, seed=2), 30))
    augmenter = make(RandomSampler(), None, 2, seed=2, executor=LocalProcesses(stall_timeout=0.5))
    batches = take(augmenter, 4)
    os.kill(batches[-1][WITNESS]["pid"], signal.SIGSTOP)
    batches += take(augmenter, 26)
    assert fingerprints_of(batches) == expected
    assert "it made no progress for 0.5 s; it is stopped (SIGSTOP" in caplog.text


class Ticketed:
    """Makes a loader in the process that calls it. The first `num_hanging` workers never get it."""

    def __init__(self, folder: Path, num_hanging: int) -> None:
        self.folder = folder
        self.num_hanging = num_hanging
        self.program = os.getpid()

    def __call__(self) -> RandomLoader:
        if os.getpid() != self.program:
            for number in range(self.num_hanging):
                with suppress(FileExistsError):
                    (self.folder / str(number)).touch(exist_ok=False)
                    signal.pause()
        return RandomLoader()


class HangsWhenUnpickled(RandomLoader):
    """Other interpreters wait for ever for it."""

    def __init__(self) -> None:
        super().__init__()
        self.program = os.getpid()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if os.getpid() != self.program:
            signal.pause()


def test_a_worker_that_hangs_while_it_starts_is_replaced(
    make: Maker, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stall_watch, "SHORTEST_START", 5.0)
    expected = fingerprints_of(take(make(RandomLoader(), None, 0, seed=2, num_streams=1), 6))
    executor = LocalProcesses(stall_timeout=0.5)
    loader = Ticketed(tmp_path, 1)
    augmenter = make(loader, None, 1, seed=2, num_streams=1, executor=executor)
    assert fingerprints_of(take(augmenter, 6)) == expected
    assert (
        "while it started (killed: it had not started after 5 s); starting another" in caplog.text
    )


@pytest.mark.parametrize("start_method", ["fork", "spawn", "forkserver"])
def test_workers_that_all_hang_while_they_start_are_an_error(
    make: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start_method: str
) -> None:
    monkeypatch.setattr(stall_watch, "SHORTEST_START", 2.0)
    loader = Ticketed(tmp_path, 9) if start_method == "fork" else HangsWhenUnpickled()
    executor = LocalProcesses(start_method, stall_timeout=0.5)
    augmenter = make(loader, None, 3, seed=2, executor=executor)
    with pytest.raises(RuntimeError, match=r"while they start.*had not started after 2 s"):
        next(augmenter)


def test_a_helper_that_hangs_while_it_starts_is_an_error(
    make: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stall_watch, "SHORTEST_START", 1.0)
    monkeypatch.setattr(stall_watch, "_KILL_SECONDS", 0.5)
    (tmp_path / "sitecustomize.py").write_text("import signal; signal.pause()")
    monkeypatch.syspath_prepend(tmp_path)
    executor = LocalProcesses("spawn", stall_timeout=0.5)
    augmenter = make(RandomLoader(), None, 3, seed=2, executor=executor)
    with pytest.raises(RuntimeError, match=r"while they start.*had not started after 1 s"):
        next(augmenter)


@pytest.fixture
def stuck(tmp_path: Path) -> Iterator[Path]:
    """A frozen file system: whoever writes to it waits, as for a file server that is gone."""
    commands = ("mkfs.ext4", "mount", "umount", "fsfreeze")
    if os.geteuid() != 0 or not all(map(shutil.which, commands)):
        pytest.skip(f"freezing a file system takes root, and {', '.join(commands)}")
    image, place = tmp_path / "image", tmp_path / "place"
    image.write_bytes(bytes(8 << 20))
    place.mkdir()
    assert run_program(["mkfs.ext4", "-q", "-F", str(image)]).returncode == 0
    if run_program(["mount", "-o", "loop", str(image), str(place)]).returncode:
        pytest.skip("no file system can be mounted here")
    assert run_program(["fsfreeze", "-f", str(place)]).returncode == 0
    try:
        yield place
    finally:
        run_program(["fsfreeze", "-u", str(place)])
        wait_until(lambda: run_program(["umount", str(place)]).returncode == 0, "unmounted")


def test_worker_that_a_stuck_file_system_holds_is_abandoned_and_its_batch_made_elsewhere(
    make: Maker,
    mark: str,
    stuck: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stall_watch, "_KILL_SECONDS", 1.0)
    expected = fingerprints_of(take(make(RandomLoader(), None, 0, seed=2), 12))
    loader = WritesOnce(3, str(stuck / "file"), str(tmp_path / "pid"))
    augmenter = make(loader, None, 2, seed=2, executor=LocalProcesses(stall_timeout=0.5))
    assert fingerprints_of(take(augmenter, 12)) == expected
    assert "it waits in the kernel and cannot be interrupted" in caplog.text
    assert "cannot be killed and is abandoned" in caplog.text
    augmenter.close()
    held = int((tmp_path / "pid").read_text())
    assert psutil.pid_exists(held)
    assert run_program(["fsfreeze", "-u", str(stuck)]).returncode == 0
    wait_until(
        lambda: not psutil.pid_exists(held), "it ends when the file system answers", patience=10
    )
