"""What the parts are given, what they yield, and the processes that they work in."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks.forks import seed_from_system

_fork = multiprocessing.get_context("fork")


@dataclass(frozen=True)
class Finding:
    """One result of a part.

    Attributes:
        name: what was tried; unique in its part.
        text: the result in words, for people.
        values: the result in numbers, for JSON.
        is_as_promised: False if it contradicts what detaug promises.
    """

    name: str
    text: str
    values: dict[str, Any] = field(default_factory=dict)
    is_as_promised: bool = True


@dataclass(frozen=True)
class Bench:
    """What a part runs with.

    Attributes:
        device: ``cuda`` or ``cpu``.
        folder: of its own, for data sets and logs.
        deadline: reading of `time.monotonic` by which the part should be over.
        quick: the short form: small and few, which shows that it runs.
    """

    device: str
    folder: Path
    deadline: float
    quick: bool = False

    @property
    def seconds_left(self) -> float:
        """Until the deadline, at least 0."""
        return max(0.0, self.deadline - time.monotonic())


class Child:
    """A forked process that runs ``function(*args)``, a generator of findings.

    Each child starts CUDA afresh, so that none meets what another left there. The process that
    forks may never start it: what it forks could not use it any more. So even the question whether
    there is a GPU is asked in a child. Each child's global random generators are seeded afresh.

    Args:
        bench: its folder is for the log.
        name: of the finding that says how the child failed.
        function: is called in the child.
        args: its arguments.
        exit_code: with which the child ends if all goes well.
    """

    def __init__(
        self,
        bench: Bench,
        name: str,
        function: Callable[..., Iterator[Finding]],
        *args: Any,
        exit_code: int = 0,
    ) -> None:
        self._bench = bench
        self._name = name
        self._exit_code = exit_code
        self._log = bench.folder / f"{name}.txt"
        self._receiver, sender = _fork.Pipe(duplex=False)
        self._process = _fork.Process(target=_run, args=(sender, self._log, name, function, args))
        self._process.start()
        sender.close()

    def findings(self) -> Iterator[Finding]:
        """Yield what the child finds; then end it and all that it started.

        One that raises, dies or is not over at the deadline yields a finding that says so.
        """
        try:
            while self._receiver.poll(self._bench.seconds_left):
                finding = self._receiver.recv()
                if finding is None:
                    return
                yield finding
            yield Finding(self._name, "no time left")
        except EOFError:
            self._process.join()
            if self._process.exitcode != self._exit_code:
                yield self._died()
        finally:
            self._receiver.close()
            # Also where the process itself is over: stock nnU-Net's workers outlive it.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid or 0, signal.SIGKILL)
            self._process.join()

    def _died(self) -> Finding:
        lines = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        text = "\n  ".join([f"failed: exit code {self._process.exitcode}", *lines[-5:]])
        return Finding(self._name, text, {"error": text}, is_as_promised=False)


def _run(
    sender: Connection,
    log: Path,
    name: str,
    function: Callable[..., Iterator[Finding]],
    args: tuple[Any, ...],
) -> None:
    os.setsid()
    output = log.open("a", buffering=1, encoding="utf-8")
    # Both the streams of Python and those of C and of programs that the child starts.
    sys.stdout = sys.stderr = output
    for descriptor in (1, 2):
        os.dup2(output.fileno(), descriptor)
    try:
        seed_from_system()
        for finding in function(*args):
            sender.send(finding)
    except BaseException as error:
        trace = traceback.format_exc()
        print(trace)
        sender.send(Finding(name, f"failed: {error!r}", {"error": trace}, is_as_promised=False))
    # Workers that the function left hold the pipe open: its end alone would not be seen.
    sender.send(None)
    # Without Python's own end: threads and workers of other libraries must not hold it up.
    os._exit(0)
