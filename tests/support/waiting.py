"""Waits that end: after two minutes they fail, and say what they waited for."""

from __future__ import annotations

import select
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar

T = TypeVar("T")

#: Seconds; a busy machine takes one of these minutes to import torch.
PATIENCE = 120.0


class Running(Protocol):
    """A thread or a process of `multiprocessing`."""

    def join(self, timeout: float | None = None) -> None: ...

    def is_alive(self) -> bool: ...


def join(running: Running, what: str) -> None:
    """Wait until a thread or process has ended."""
    running.join(PATIENCE)
    assert not running.is_alive(), f"{what}: not after {PATIENCE:g} s"


def wait_readable(source: Any, what: str) -> None:
    """Wait until a descriptor, or an object with a `fileno`, can be read without waiting."""
    # select() cannot watch descriptors above 1023.
    waiting = select.poll()
    waiting.register(source, select.POLLIN)
    assert waiting.poll(1000 * PATIENCE), f"{what}: not after {PATIENCE:g} s"


def result_of(function: Callable[[], T], what: str) -> T:
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
    join(thread, what)
    return future.result(0)
