"""Run work in forked processes, so that none meets what another left in CUDA.

The process that forks may never start CUDA: what it forks could not use it any more. So even the
question whether there is a GPU is asked in a child.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

_fork = multiprocessing.get_context("fork")

#: Is called with each result as soon as there is one.
Send = Callable[[Any], None]


class ChildFailed(RuntimeError):
    """A child raised, died or ran out of time; the message ends with the last lines of its log."""


class Child:
    """A forked process with a session of its own, whose output goes to a file.

    Args:
        function: called as ``function(send, *args)``.
        args: its further arguments.
        log: the file.
    """

    def __init__(self, function: Callable[..., None], *args: Any, log: Path) -> None:
        self.log = log
        self._is_ended = False
        self._receiver, sender = _fork.Pipe(duplex=False)
        self._process = _fork.Process(target=_run, args=(sender, log, function, args))
        self._process.start()
        sender.close()

    def results(self, seconds: float) -> Iterator[Any]:
        """Yield what the child sends until it is over; then end it and all that it started.

        Raises:
            ChildFailed: it raised, died, or was not over in time.
        """
        deadline = time.monotonic() + seconds
        try:
            while self._receiver.poll(max(0.0, deadline - time.monotonic())):
                try:
                    is_error, message = self._receiver.recv()
                except EOFError:
                    break
                if is_error:
                    raise ChildFailed(message)
                yield message
            else:
                raise ChildFailed(f"not over in time{self._last_lines()}")
            self._process.join(max(1.0, deadline - time.monotonic()))
            if self._process.exitcode != 0:
                raise ChildFailed(f"exit code {self._process.exitcode}{self._last_lines()}")
        finally:
            self.end()

    @property
    def exit_code(self) -> int | None:
        """As `multiprocessing.Process.exitcode` has it."""
        return self._process.exitcode

    def end(self) -> None:
        """Kill the process and all that it started, if they are still there."""
        if self._is_ended:
            return
        self._is_ended = True
        self._receiver.close()
        # Also where the process itself is over: stock nnU-Net's workers outlive it.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid or 0, signal.SIGKILL)
        self._process.join()

    def _last_lines(self) -> str:
        lines = self.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return "".join(f"\n  {line}" for line in lines[-5:])


def result_in_child(function: Callable[..., None], *args: Any, log: Path, seconds: float) -> Any:
    """Return the one result that ``function(send, *args)`` sends."""
    (result,) = Child(function, *args, log=log).results(seconds)
    return result


def _run(
    sender: Connection, log: Path, function: Callable[..., None], args: tuple[Any, ...]
) -> None:
    os.setsid()
    output = log.open("a", buffering=1, encoding="utf-8")
    # Both the streams of Python and those of C and of programs that the child starts.
    sys.stdout = sys.stderr = output
    for descriptor in (1, 2):
        os.dup2(output.fileno(), descriptor)
    status = 0
    try:
        function(_sending(sender), *args)
    except BaseException as error:
        traceback.print_exc()
        sender.send((True, f"{type(error).__name__}: {error}"))
        status = 1
    output.flush()
    sender.close()
    # Without Python's own end: threads and workers of other libraries must not hold it up.
    os._exit(status)


def _sending(sender: Connection) -> Send:
    def send(result: Any) -> None:
        sender.send((False, result))

    return send
