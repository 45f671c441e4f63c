"""A file system that does not answer: a worker that touches it waits in the kernel, where no signal reaches it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from detaug import LocalProcesses
from detaug.engine.local import handles
from tests.processes.engine.misbehaving import WritesOnce
from tests.support.augmenters import Maker
from tests.support.comparing import prints, take
from tests.support.loaders import RandomLoader
from tests.support.processes import wait_until

pytestmark = pytest.mark.timeout(90)


@pytest.fixture
def stuck(tmp_path: Path) -> Iterator[Path]:
    """A frozen file system: whoever writes to it waits, as for a file server that is gone."""
    commands = ("mkfs.ext4", "mount", "umount", "fsfreeze")
    if os.geteuid() != 0 or not all(map(shutil.which, commands)):
        pytest.skip(f"freezing a file system takes root, and {', '.join(commands)}")
    image, place = tmp_path / "image", tmp_path / "place"
    image.write_bytes(bytes(8 << 20))
    place.mkdir()
    subprocess.run(["mkfs.ext4", "-q", "-F", str(image)], check=True)
    if subprocess.run(["mount", "-o", "loop", str(image), str(place)], capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    subprocess.run(["fsfreeze", "-f", str(place)], check=True)
    try:
        yield place
    finally:
        subprocess.run(["fsfreeze", "-u", str(place)], capture_output=True)
        wait_until(lambda: subprocess.run(["umount", str(place)], capture_output=True).returncode == 0, "unmounted")


def test_worker_that_a_stuck_file_system_holds_is_abandoned_and_its_batch_made_elsewhere(
    make: Maker,
    mark: str,
    stuck: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(handles, "_KILL_SECONDS", 1.0)
    expected = prints(take(make(RandomLoader(), None, 0, seed=2), 12))
    loader = WritesOnce(3, str(stuck / "file"), str(tmp_path / "pid"))
    augmenter = make(loader, None, 2, seed=2, executor=LocalProcesses(stall_timeout=0.5))
    assert prints(take(augmenter, 12)) == expected
    assert "it waits in the kernel and cannot be interrupted" in caplog.text
    assert "cannot be killed and is abandoned" in caplog.text
    augmenter.close()
    held = int((tmp_path / "pid").read_text())
    assert psutil.pid_exists(held)
    subprocess.run(["fsfreeze", "-u", str(stuck)], check=True)
    wait_until(lambda: not psutil.pid_exists(held), "it ends when the file system answers", patience=10)
