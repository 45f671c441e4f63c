"""Loaders whose process ends, hangs, leaks or meets a limit at one step. Importable by workers of
every start method.
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import psutil

import detaug
from tests.support.faults import once
from tests.support.loaders import RandomLoader


class CancelledError(BaseException):
    """Not an Exception, as asyncio's and trio's ways to cancel."""


def _cancel() -> None:
    raise CancelledError("the reader was cancelled")


def _read_address_zero() -> None:
    # pytest's: it would print every thread and all extension modules of a crash that is wanted
    faulthandler.disable()
    ctypes.string_at(0)


ENDINGS: dict[str, Callable[[], Any]] = {
    "segmentation fault": _read_address_zero,
    "killed as by the out-of-memory killer": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "os._exit(7)": partial(os._exit, 7),
    "sys.exit()": sys.exit,
    "sys.exit('no licence')": partial(sys.exit, "no licence"),
    "closes every descriptor": partial(os.closerange, 3, 1000),
    "cancelled": _cancel,
}

#: What a message says of those that end the process.
REPORTS = {
    "segmentation fault": "SIGSEGV",
    "killed as by the out-of-memory killer": "SIGKILL",
    "os._exit(7)": "exit code 7",
    "sys.exit()": "exit code 0",
    "sys.exit('no licence')": "exit code 1",
    "closes every descriptor": "exit code 0",
}


class Ends(RandomLoader):
    """Its process ends at one step: once, or whenever there is no flag."""

    def __init__(self, how: str, step: int = 3, flag: str | None = None) -> None:
        super().__init__()
        self._how, self._step, self._flag = how, step, flag

    def generate_train_batch(self) -> dict[str, Any]:
        batch = super().generate_train_batch()
        if detaug.current().step == self._step and (self._flag is None or once(self._flag)):
            ENDINGS[self._how]()
        return batch


class Sleepy:
    """A transform that does not come back from one step: once, or whenever there is no flag."""

    def __init__(self, step: int, flag: str | None = None, seconds: float = 1000.0) -> None:
        self._step, self._flag, self._seconds = step, flag, seconds

    def __call__(self, **batch: Any) -> dict[str, Any]:
        if detaug.current().step == self._step and (self._flag is None or once(self._flag)):
            time.sleep(self._seconds)
        return batch


class WritesOnce(RandomLoader):
    """At one step, the first time, writes to a file; `flag` tells by whom."""

    def __init__(self, step: int, file: str, flag: str) -> None:
        super().__init__()
        self._step, self._file, self._flag = step, file, flag

    def generate_train_batch(self) -> dict[str, Any]:
        if detaug.current().step == self._step and once(self._flag):
            with open(self._flag, "w") as flag:
                flag.write(str(os.getpid()))
            os.close(os.open(self._file, os.O_CREAT | os.O_WRONLY))
        return super().generate_train_batch()


LEAKED: list[Any] = []


class CountsAndLeaks(RandomLoader):
    """Keeps some bytes of every batch, with a count that makes it a loader of streams."""

    def __init__(self, leak: int = 40 * 2**20) -> None:
        super().__init__()
        self._leak = leak
        self._count = 0

    def generate_train_batch(self) -> dict[str, Any]:
        LEAKED.append(np.ones(self._leak, np.uint8))
        self._count += 1
        return {**super().generate_train_batch(), "count": self._count}


class MeetsALimit(RandomLoader):
    """At step 2 a limit is set and met."""

    def __init__(self, which: str) -> None:
        super().__init__()
        self.which = which

    def generate_train_batch(self) -> dict[str, Any]:
        batch = super().generate_train_batch()
        if detaug.current().step == 2:
            batch["large"] = self._meet()
        return batch

    def _meet(self) -> Any:
        if self.which == "array":
            resource.setrlimit(resource.RLIMIT_AS, (2**32, 2**32))
            return np.ones(2**33, np.uint8)
        large = np.ones(2**28, np.uint8)
        if self.which == "batch":
            room = psutil.Process().memory_info().vms + 2**27
            resource.setrlimit(resource.RLIMIT_AS, (room, room))
        elif self.which == "descriptors":
            lowest = os.open(os.devnull, os.O_RDONLY)
            os.close(lowest)
            resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, lowest))
        return large
