"""Loaders may use threads and processes; whatever they started is gone when their worker is."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.processes import PRELUDE, Script, wait_until

pytestmark = pytest.mark.timeout(90)

LOADERS = (
    PRELUDE
    + """
import multiprocessing, subprocess
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

FORK = multiprocessing.get_context("fork")
POOLS = {
    "threads": lambda: ThreadPoolExecutor(3),
    "pool": lambda: FORK.Pool(2),
    "executor": lambda: ProcessPoolExecutor(2, mp_context=FORK),
}

class Pooled(Loader):
    def __init__(self, what):
        self.what, self.pool = what, None
    def __next__(self):
        if self.pool is None:
            self.pool = POOLS[self.what]()
        return {"data": list(self.pool.map(abs, [-1, -2])), "pid": os.getpid()}

class Program(Loader):
    def __next__(self):
        subprocess.Popen(["sh", "-c", "sleep 1000 & sleep 1000"])
        return {"data": [1, 2], "pid": os.getpid()}

def made(what):
    return Program() if what == "program" else Pooled(what)
"""
)

RUN = """
    with augmenter(made(sys.argv[2]), stateless=True) as aug:
        batches = [next(aug) for _ in range(4)]
        os.kill(batches[-1]["pid"], signal.SIGKILL)
        batches += [next(aug) for _ in range(6)]
        assert all(batch["data"] == [1, 2] for batch in batches)
    print("end")
    time.sleep(1000)
"""


@pytest.mark.parametrize(
    ("method", "what"),
    [
        ("fork", "threads"),
        ("fork", "pool"),
        ("fork", "program"),
        *(
            pytest.param(*each, marks=pytest.mark.slow)
            for each in [("fork", "executor"), ("spawn", "pool")]
        ),
    ],
)
def test_nothing_that_a_loader_started_outlives_a_killed_worker_and_the_augmenter(
    script: Callable[..., Script], method: str, what: str
) -> None:
    run = script(RUN, method, what, prelude=LOADERS)
    assert run.read_line() == "end"
    wait_until(lambda: not run.others(), f"only the script is left, not {run.others()}")


@pytest.mark.parametrize("what", ["pool", pytest.param("program", marks=pytest.mark.slow)])
def test_nothing_that_a_loader_started_outlives_a_killed_parent(
    script: Callable[..., Script], what: str
) -> None:
    run = script(RUN.replace("[next", "print('begun') or [next", 1), "fork", what, prelude=LOADERS)
    assert run.read_line() == "begun"
    wait_until(lambda: len(run.others()) > 4, "the loader's processes are there")
    run.kill()
    run.assert_nobody_left()
