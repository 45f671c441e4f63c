"""A container with nothing writable, or without /dev/shm, is enough; nothing is left there."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.processes import Script
from tests.support.waiting import run_program

pytestmark = pytest.mark.timeout(120)

READ_ONLY = 'mount -o remount,ro,bind / && mount -t tmpfs -o ro tmpfs /dev/shm && exec "$@"'
EMPTY_SHM = "mount -t tmpfs tmpfs /dev/shm"
NO_SHM = (
    "mount -t tmpfs tmpfs /mnt && cp -a /dev/null /dev/zero /dev/random /dev/urandom /mnt && mount "
    "--bind /mnt /dev"
)

#: A script that begins so has mounts of its own, which nobody else sees.
OWN_MOUNTS = """
    import ctypes, subprocess
    CLONE_NEWNS = 0x20000
    assert ctypes.CDLL(None).unshare(CLONE_NEWNS) == 0
    mounts = "mount --make-rprivate / && " + sys.argv[2]
    assert subprocess.run(["sh", "-c", mounts], check=False).returncode == 0
"""

PROBE = """
    for place in (os.path.expanduser("~"), "/tmp", "."):
        try:
            open(os.path.join(place, "probe"), "w").close()
            print("can write")
        except OSError:
            pass
"""

BODY = """
    class Large(Loader):
        def __next__(self):
            return {"data": np.full((4, 2**20), 7, np.float32), "pid": os.getpid()}
    print(os.path.exists("/dev/shm"))
    with augmenter(Large()) as aug:
        held = [next(aug) for _ in range(4)]
    print(all((batch["data"] == 7).all() for batch in held))
"""
LEFT = """
    del held
    print(os.listdir("/dev/shm"))
"""


def in_a_namespace(mounts: str) -> tuple[str, ...]:
    """Return the beginning of a command that has these mounts alone."""
    return ("unshare", "-m", "sh", "-c", mounts, "sh")


@pytest.fixture(scope="module", autouse=True)
def _mounts() -> None:
    is_possible = (
        sys.platform == "linux"
        and os.geteuid() == 0
        and shutil.which("unshare") is not None
        and run_program([*in_a_namespace(READ_ONLY), "true"]).returncode == 0
    )
    if not is_possible:
        pytest.skip("a mount namespace takes root")


@pytest.fixture
def _no_dill(tmp_path: Path) -> None:
    """torch imports dill wherever it is installed, and dill cannot be imported where no temporary
    file can be made.
    """
    (tmp_path / "dill.py").write_text("def extend(use_dill):\n    pass\n")


@pytest.mark.usefixtures("_no_dill")
@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_nothing_need_be_writable(script: Callable[..., Script], method: str) -> None:
    run = script(PROBE + BODY, method, wrap=in_a_namespace(READ_ONLY))
    run.finish()
    assert run.err == ""
    assert run.lines == ["True", "True"]


def test_shared_memory_folder_may_be_absent(
    script: Callable[..., Script], start_method: str
) -> None:
    run = script(OWN_MOUNTS + BODY, start_method, NO_SHM)
    run.finish()
    assert run.err == ""
    assert run.lines == ["False", "True"]


def test_nothing_is_left_in_the_shared_memory_folder(
    script: Callable[..., Script], start_method: str
) -> None:
    run = script(OWN_MOUNTS + BODY + LEFT, start_method, EMPTY_SHM)
    run.finish()
    assert run.err == ""
    assert run.lines == ["True", "True", "[]"]
