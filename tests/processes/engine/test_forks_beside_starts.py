"""A process that is forked while another thread starts an interpreter does not hold that thread up."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from detaug.processes.interpreters import Surrounding


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of threads at a fork
def test_a_fork_does_not_hold_up_a_thread_that_starts_an_interpreter() -> None:
    started: list[int] = []

    def starts() -> None:
        for _ in range(20):
            started.append(Surrounding.here().start("pass", ()).wait())

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
        os.waitpid(child, 0)
    thread.join(30)
    assert not is_held_up
    assert started == [0] * 20
