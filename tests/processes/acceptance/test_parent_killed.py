"""When the parent is killed, everybody below it is gone within 5 s."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest

from tests.support.processes import Script, wait_until

pytestmark = pytest.mark.timeout(90)


def kill_and_watch(run: Script) -> None:
    os.kill(run.pid, signal.SIGKILL)
    run.process.wait()
    run.assert_nobody_left()


def test_workers_leave_when_the_parent_is_killed_in_its_loop(script: Callable[..., Script], start_method: str) -> None:
    run = script(
        """
        aug = augmenter()
        assert os.getpid() not in {next(aug)["pid"] for _ in range(6)}
        print("ready")
        while True:
            next(aug)
        """,
        start_method,
    )
    assert run.read_line() == "ready"
    assert run.others()
    kill_and_watch(run)


HOLDS_THE_LOCK = "in one call that holds the interpreter's lock"
BUSY = {
    "asleep": "time.sleep(1000)",
    "in Python code": "while True: pass",
    HOLDS_THE_LOCK: "import re; re.match('(a+)+$', 'a' * 60 + 'b')",
}


@pytest.mark.parametrize(
    ("method", "busy"),
    [*(("fork", busy) for busy in BUSY), ("spawn", HOLDS_THE_LOCK), ("forkserver", HOLDS_THE_LOCK)],
)
def test_worker_leaves_though_its_loader_is_busy(script: Callable[..., Script], method: str, busy: str) -> None:
    run = script(
        f"""
        class Busy(Loader):
            def __next__(self):
                print("busy")
                {BUSY[busy]}
        aug = augmenter(Busy(), num_processes=1, num_streams=1)
        next(aug)
        """,
        method,
    )
    assert run.read_line() == "busy"
    kill_and_watch(run)


def test_workers_leave_though_a_forked_child_of_the_user_lives_on(
    script: Callable[..., Script], start_method: str
) -> None:
    run = script(
        """
        aug = augmenter()
        next(aug)
        if os.fork() == 0:
            time.sleep(1000)
        print("ready")
        time.sleep(1000)
        """,
        start_method,
    )
    assert run.read_line() == "ready"
    children = run.others()
    os.kill(run.pid, signal.SIGKILL)
    run.process.wait()
    wait_until(lambda: len(run.alive()) <= 1, f"only the user's own child is left of {children}")


def test_workers_leave_though_the_thread_that_started_them_lives_no_more(
    script: Callable[..., Script], start_method: str
) -> None:
    run = script(
        """
        import threading
        aug = augmenter()
        thread = threading.Thread(target=next, args=(aug,))
        thread.start()
        thread.join()
        assert os.getpid() not in {next(aug)["pid"] for _ in range(40)}
        print("ready")
        time.sleep(1000)
        """,
        start_method,
    )
    assert run.read_line() == "ready"
    kill_and_watch(run)


@pytest.mark.parametrize("moment", [0, 2])
def test_parent_killed_while_its_workers_start_leaves_nobody(
    script: Callable[..., Script], start_method: str, moment: int
) -> None:
    run = script("print('ready')\naug = augmenter(num_processes=3)\nnext(aug)\ntime.sleep(1000)", start_method)
    assert run.read_line() == "ready"
    wait_until(lambda: len(run.others()) >= moment, f"{moment} processes are started")
    kill_and_watch(run)
