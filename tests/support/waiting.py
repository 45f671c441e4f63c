"""Waits that end: after two minutes they fail, and say what they waited for."""

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

#: Seconds; a busy machine takes one of these minutes to import torch.
PATIENCE = 120.0


class Running(Protocol):
    """A thread or a process of `multiprocessing`."""

    def join(self, timeout: float | None = None) -> None: ...

    def is_alive(self) -> bool: ...


def join(running: Running, what: str, patience: float = PATIENCE) -> None:
    """Wait until a thread or process has ended."""
    running.join(patience)
    assert not running.is_alive(), f"{what}: not after {patience:g} s"


def exit_code(pid: int, what: str, patience: float = PATIENCE) -> int:
    """Wait until a forked child has ended; return its exit code, negative for a signal."""
    deadline = time.monotonic() + patience
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        assert time.monotonic() < deadline, f"{what}: not after {patience:g} s"
        time.sleep(0.005)


def run_in_threads(functions: Iterable[Callable[[], object]], what: str) -> None:
    """Call functions at the same time, each in a thread of its own, and wait for all of them."""
    # A thread that waits for ever must not keep the interpreter from its end.
    threads = [threading.Thread(target=function, daemon=True) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        join(thread, what)


def run_program(
    command: Sequence[str], timeout: float = PATIENCE, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, and return what it printed; kill it where it does not end."""
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=timeout, **options
    )


def receive(connection: Connection, what: str) -> Any:
    """Return what comes through a connection."""
    wait_readable(connection, what)
    return connection.recv()


def wait_for_line(lines: Iterable[str], text: str, what: str, patience: float = PATIENCE) -> None:
    """Read what a program prints until a line has a text."""
    seen: list[str] = []

    def read() -> bool:
        for line in lines:
            seen.append(line)
            if text in line:
                return True
        return False

    assert result_of(read, what, patience), "".join(seen)[-6000:]


def wait_readable(source: Any, what: str, patience: float = PATIENCE) -> None:
    """Wait until a descriptor, or an object with a `fileno`, can be read without waiting."""
    # select() cannot watch descriptors above 1023.
    waiting = select.poll()
    waiting.register(source, select.POLLIN)
    assert waiting.poll(1000 * patience), f"{what}: not after {patience:g} s"


def result_of(function: Callable[[], T], what: str, patience: float = PATIENCE) -> T:
    """Return what a function returns that may wait; it is called in a thread, which is left behind
    where it waits for ever.
    """
    future: Future[T] = Future()

    def call() -> None:
        try:
            future.set_result(function())
        except BaseException as error:
            future.set_exception(error)

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    join(thread, what, patience)
    return future.result(0)
