"""Waits with a bound: after two minutes they fail and name what they waited for.

The argument `event` is that name, such as "the worker has ended".
"""

from __future__ import annotations

import os
import select
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from multiprocessing.connection import Connection
from typing import Any, Protocol, TypeVar

T = TypeVar("T")

#: Seconds. On a busy machine an import of torch alone takes half of them.
PATIENCE = 120.0


class Running(Protocol):
    """A thread or a process of `multiprocessing`."""

    def join(self, timeout: float | None = None) -> None: ...

    def is_alive(self) -> bool: ...


def join(running: Running, event: str, patience: float = PATIENCE) -> None:
    """Wait until a thread or process has ended."""
    running.join(patience)
    assert not running.is_alive(), f"{event}: not after {patience:g} s"


def exit_code(pid: int, event: str, patience: float = PATIENCE) -> int:
    """Wait until a forked child has ended; return its exit code, negative for a signal."""
    deadline = time.monotonic() + patience
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        assert time.monotonic() < deadline, f"{event}: not after {patience:g} s"
        time.sleep(0.005)


def run_in_threads(functions: Iterable[Callable[[], object]], event: str) -> None:
    """Call functions at the same time, each in a thread of its own, and wait for all of them."""
    # Daemons, as a thread that waits for ever would otherwise keep the interpreter alive.
    threads = [threading.Thread(target=function, daemon=True) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        join(thread, event)


def run_program(
    command: Sequence[str], timeout: float = PATIENCE, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run a command and return its exit code and output; kill it after `timeout` seconds."""
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=timeout, **options
    )


def receive(connection: Connection, event: str) -> Any:
    """Return the next object that comes through a connection."""
    wait_readable(connection, event)
    return connection.recv()


def wait_for_line(lines: Iterable[str], text: str, event: str, patience: float = PATIENCE) -> None:
    """Read a program's output until a line contains a text."""
    lines_read: list[str] = []

    def read() -> bool:
        for line in lines:
            lines_read.append(line)
            if text in line:
                return True
        return False

    assert result_of(read, event, patience), "".join(lines_read)[-6000:]


def wait_readable(source: Any, event: str, patience: float = PATIENCE) -> None:
    """Wait until a descriptor, or an object with a `fileno`, can be read without waiting."""
    # poll(), as select() cannot watch descriptors above 1023.
    poller = select.poll()
    poller.register(source, select.POLLIN)
    assert poller.poll(1000 * patience), f"{event}: not after {patience:g} s"


def result_of(function: Callable[[], T], event: str, patience: float = PATIENCE) -> T:
    """Return the result of a function that may wait, or raise what it raises.

    The function is called in a daemon thread, which is abandoned if it waits for too long.
    """
    future: Future[T] = Future()

    def call() -> None:
        try:
            future.set_result(function())
        except BaseException as error:
            future.set_exception(error)

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    join(thread, event, patience)
    return future.result(0)
