"""A thread of the parent that prints, or starts an interpreter, while others are forked: nobody is
held up.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable

import pytest

from detaug.system.interpreters import InterpreterOptions
from tests.support.processes import Script
from tests.support.waiting import PATIENCE, exit_code

pytestmark = pytest.mark.timeout(60)

BODY = """
    import logging, threading
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    try:
        while True:
            os.write(writing, b"x" * 4096)
    except BlockingIOError:
        os.set_blocking(writing, True)
    terminal, STREAM = STREAM, open(writing, "w")
    logging.basicConfig(stream=STREAM)
    held = threading.Thread(target=lambda: (STREAM.write("y" * 100_000), STREAM.flush()), daemon=True)
    held.start()
    while "pipe_write" not in open(f"/proc/self/task/{held.native_id}/wchan").read():
        time.sleep(0.01)
    with augmenter() as aug:
        assert os.getpid() not in {next(aug)["pid"] for _ in range(6)}
        aug.close()
    os.write(2 if terminal is sys.__stderr__ else 1, b"end\\n")
    os.read(reading, 2**20)
    os.close(reading)
    os._exit(0)
"""


@pytest.mark.skipif(
    not os.path.isdir("/proc/self/task"), reason="where a thread waits is read in /proc"
)
@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_workers_forked_while_a_thread_prints_work_and_end(
    script: Callable[..., Script], stream: str
) -> None:
    run = script(BODY.replace("STREAM", f"sys.{stream}"), "fork")
    run.finish()
    assert (run.lines == ["end"]) if stream == "stdout" else ("end" in run.err)
    run.assert_nobody_left()


def test_what_the_parent_had_not_written_out_is_written_once(script: Callable[..., Script]) -> None:
    run = script(
        """
        sys.stdout = open(1, "w", buffering=100_000, closefd=False)
        print("once")
        with augmenter() as aug:
            for _ in range(4):
                next(aug)
        sys.stdout.flush()
        """,
        "fork",
    )
    run.finish()
    assert run.lines == ["once"]


def test_both_streams_may_be_one_file(script: Callable[..., Script]) -> None:
    run = script(
        """
        sys.stdout = sys.stderr = open(1, "w", closefd=False)
        with augmenter() as aug:
            for _ in range(4):
                next(aug)
        print("worked", flush=True)
        """,
        "fork",
    )
    run.finish()
    assert run.lines == ["worked"]
    run.assert_nobody_left()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of threads at a fork
def test_a_fork_does_not_hold_up_a_thread_that_starts_an_interpreter() -> None:
    started: list[int] = []

    def starts() -> None:
        for _ in range(20):
            started.append(InterpreterOptions.here().start("pass", ()).wait(PATIENCE))

    thread, children = threading.Thread(target=starts, daemon=True), []
    thread.start()
    while thread.is_alive() and len(children) < 200:
        children.append(os.fork())
        if not children[-1]:
            signal.pause()  # it lives on, with whatever it has inherited
        thread.join(0.002)
    thread.join(30)
    is_held_up = thread.is_alive()
    for child in children:
        os.kill(child, signal.SIGKILL)
        exit_code(child, "a killed child has ended")
    thread.join(30)
    assert not is_held_up
    assert started == [0] * 20
