"""Shutdown is clean: nothing is left, and nothing printed; nor is anybody left within 5 s where the
parent is killed.
"""

from __future__ import annotations

import gc
from collections.abc import Callable

import pytest

from detaug import DeterministicAugmenter, LocalProcesses
from tests.support.augmenters import Maker
from tests.support.comparing import take
from tests.support.loaders import RandomSampler
from tests.support.processes import Script, open_descriptors, own_processes, wait_until
from tests.support.witness import assert_made_by_workers

pytestmark = pytest.mark.timeout(90)


def ends_quietly(run: Script, *lines: str, code: int = 0) -> None:
    run.finish()
    assert run.err == ""
    assert run.lines == list(lines)
    assert run.process.returncode == code
    run.assert_nobody_left()


PROOF = "assert os.getpid() not in {next(aug)['pid'] for _ in range(6)}"

ENDINGS = {
    "interpreter exit": f"""
        aug = augmenter()
        {PROOF}
        print("end")
    """,
    "interpreter exit before the first batch": """
        aug = augmenter()
        aug._start()
        print("end")
    """,
    "close": f"""
        aug = augmenter()
        {PROOF}
        aug.close()
        print("end")
    """,
    "garbage collection of a cycle": f"""
        aug = augmenter()
        {PROOF}
        aug.itself = aug
        del aug
        gc.collect()
        print("end")
    """,
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_nothing_is_left_and_nothing_printed_after(
    script: Callable[..., Script], ending: str, start_method: str
) -> None:
    ends_quietly(script(ENDINGS[ending], start_method), "end")


def test_exception_in_the_loop_shows_its_own_traceback_and_nothing_else(
    script: Callable[..., Script], start_method: str
) -> None:
    run = script(
        f"""
        aug = augmenter()
        {PROOF}
        for batch in aug:
            raise RuntimeError("in the user's loop")
        """,
        start_method,
    )
    run.finish()
    assert run.process.returncode == 1
    assert run.lines == []
    lines = run.err.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[-1] == "RuntimeError: in the user's loop"
    assert run.err.count("Traceback") == 1
    run.assert_nobody_left()


INTERRUPTED = f"""
    aug = augmenter()
    {PROOF}
    try:
        print("ready")
        while True:
            next(aug)
    except KeyboardInterrupt:
        print("interrupted")
"""


def test_ctrl_c_reaches_the_loop_and_nobody_else(
    script: Callable[..., Script], start_method: str
) -> None:
    run = script(INTERRUPTED, start_method)
    assert run.read_line() == "ready"
    run.interrupt()
    ends_quietly(run, "ready", "interrupted")


def test_ctrl_c_while_a_batch_is_waited_for_gets_through(
    script: Callable[..., Script], start_method: str
) -> None:
    run = script(
        """
        class Stuck(Loader):
            def __next__(self):
                open("begun", "w").close()
                time.sleep(1000)
        try:
            with augmenter(Stuck()) as aug:
                print("ready")
                next(aug)
        except KeyboardInterrupt:
            print("interrupted")
        """,
        start_method,
    )
    assert run.read_line() == "ready"
    run.interrupt()
    ends_quietly(run, "ready", "interrupted")


def test_close_leaves_no_process_and_no_descriptor_in_this_process(
    make: Maker, mark: str, start_method: str
) -> None:
    def running(num_processes: int) -> DeterministicAugmenter:
        executor = LocalProcesses(start_method=start_method)
        return make(RandomSampler(), None, num_processes, seed=1, executor=executor)

    # A first round fills what the interpreter itself keeps for good.
    running(1)._start()
    make.close()
    gc.collect()
    descriptors, processes = open_descriptors(), set(own_processes())
    for _ in range(3):
        batches = take(running(2), 6)
        assert_made_by_workers(start_method, batches)
        del batches
        make.close()
    gc.collect()
    assert set(own_processes()) <= processes
    assert open_descriptors().items() <= descriptors.items()


@pytest.mark.parametrize("n", [0, 2])
def test_next_on_a_closed_augmenter_does_not_hang(make: Maker, n: int) -> None:
    augmenter = make(RandomSampler(), None, n, seed=1)
    take(augmenter, 3)
    augmenter.close()
    with pytest.raises(RuntimeError, match="close"):
        next(augmenter)


def kill_and_watch(run: Script) -> None:
    run.kill()
    run.assert_nobody_left()


def test_workers_leave_when_the_parent_is_killed_in_its_loop(
    script: Callable[..., Script], start_method: str
) -> None:
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
def test_worker_leaves_though_its_loader_is_busy(
    script: Callable[..., Script], method: str, busy: str
) -> None:
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
    run.kill()
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
    run = script(
        "print('ready')\naug = augmenter(num_processes=3)\nnext(aug)\ntime.sleep(1000)",
        start_method,
    )
    assert run.read_line() == "ready"
    wait_until(lambda: len(run.others()) >= moment, f"{moment} processes are started")
    kill_and_watch(run)
