"""Docker gives a container 64 MB of /dev/shm; that must be enough for batches of any size."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.support.processes import Script

BODY = """
    print(os.statvfs("/dev/shm").f_blocks * os.statvfs("/dev/shm").f_frsize)
    class Big(Loader):
        def __next__(self):
            return {"data": np.full((40, 2**20), 7, np.float32), "pid": os.getpid()}
    with augmenter(Big(), num_processes=2) as aug:
        held = [next(aug) for _ in range(2)]
        assert all((batch["data"] == 7).all() for batch in held)
        assert os.getpid() not in {batch["pid"] for batch in held}
    print(sorted(os.listdir("/dev/shm")))
"""


def can_mount() -> bool:
    if sys.platform != "linux" or os.geteuid() != 0 or shutil.which("unshare") is None:
        return False
    mount = ["unshare", "-m", "mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", "/dev/shm"]
    return subprocess.run(mount, capture_output=True, check=False).returncode == 0


@pytest.mark.timeout(120)
@pytest.mark.parametrize("size", [pytest.param("64m", marks=pytest.mark.slow), "4k"])
def test_batches_of_160_mb_pass_with_a_shared_memory_folder_of(
    script: Callable[..., Script], start_method: str, size: str
) -> None:
    if not can_mount():
        pytest.skip("a mount namespace with a small /dev/shm takes root")
    if size == "4k" and start_method != "fork":
        pytest.skip("once is enough")
    wrap = ("unshare", "-m", "sh", "-c", f'mount -t tmpfs -o size={size} tmpfs /dev/shm && exec "$@"', "sh")
    run = script(BODY, start_method, wrap=wrap)
    run.finish(patience=100)
    assert run.err == ""
    assert run.lines == [str({"64m": 64 * 2**20, "4k": 4096}[size]), "[]"]
