"""Kernels that are missing are compiled by several interpreters at once, and by the caller where
those fail.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from tests.support.preloaded import WITH_NUMBA
from tests.support.processes import wait_until
from tests.support.waiting import PATIENCE

pytestmark = pytest.mark.timeout(240)

PROGRAM = """
import sys
from detaug.kernels import ahead
from detaug.kernels.compiling import all_kernels

names = {"intensity.clamp", "intensity.scale_around"}
kernels = [each for each in all_kernels() if each.name in names]
assert len(kernels) == 2
ahead._processes_for = lambda number: 2
if sys.argv[1:]:
    ahead._PROGRAM = sys.argv[1]
print(ahead.compile_ahead(kernels), all(each.is_compiled() for each in kernels))
for each in kernels:
    stats = each.dispatcher.stats
    print(sum(stats.cache_misses.values()), sum(stats.cache_hits.values()))
print(ahead.compile_ahead(kernels))
"""


def start(cache: Path, *arguments: str) -> subprocess.Popen[str]:
    return WITH_NUMBA.run(PROGRAM, arguments, cache, {**os.environ, "NUMBA_CACHE_DIR": str(cache)})


def test_the_caller_only_loads_what_others_compiled(tmp_path: Path) -> None:
    process = start(tmp_path)
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    assert out.split("\n")[:-1] == ["2 True", *["0 1"] * 2, "0"]
    assert "compiling 2 kernels" in err
    assert "2 idle cores" in err


def test_what_others_cannot_compile_the_caller_compiles(tmp_path: Path) -> None:
    process = start(tmp_path, "import os; os.kill(os.getpid(), 9)")
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    assert out.split("\n")[:-1] == ["2 True", *["1 0"] * 2, "0"]


@pytest.mark.slow
def test_ctrl_c_ends_them_all(tmp_path: Path) -> None:
    process = start(tmp_path, "import time; time.sleep(100)")
    program = psutil.Process(process.pid)
    wait_until(lambda: len(program.children()) == 2, "two interpreters compile")
    children = program.children()
    time.sleep(0.5)  # wherever it is by then
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE)
    assert process.returncode == -signal.SIGINT
    assert not psutil.wait_procs(children, timeout=20)[1]
