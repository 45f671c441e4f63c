"""Factories that do what no factory should, for every command that takes one."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from typing import Any

import numpy as np
from batchgenerators.dataloading.data_loader import DataLoader


class Loader(DataLoader):
    def __init__(self) -> None:
        super().__init__(None, 2, infinite=True)

    def generate_train_batch(self) -> dict[str, Any]:
        return {"data": np.random.random((2, 1, 8, 8)).astype(np.float32)}


def sound() -> Any:
    return Loader(), None


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError


def _raising(error: BaseException) -> Any:
    raise error


def _doing(*calls: Any) -> Any:
    for call in calls:
        call()
    return sound()


def _sleep_in_a_thread() -> None:
    threading.Thread(target=time.sleep, args=(1e6,), daemon=True).start()


#: name → (the factory, what is said). Every command ends with 2 where one of these is called.
UNUSABLE: dict[str, tuple[Any, str]] = {
    "raises": (
        lambda: _raising(RuntimeError("no data\nat /nowhere")),
        "raises RuntimeError: no data at /nowhere (",
    ),
    "unprintable": (lambda: _raising(Unprintable()), "Unprintable"),
    "exits": (lambda: sys.exit(3), "ends the program: sys.exit(3)"),
    "wants_arguments": (lambda folder: folder, "raises TypeError: "),
    "none": (lambda: None, "it returned NoneType"),
    "a_loader_alone": (Loader, "return (it, None)"),
}

#: name → a factory that works, but does something before.
ODD: dict[str, Any] = {
    "prints": lambda: _doing(lambda: print("NOISE"), lambda: os.write(1, b"NOISE\n")),
    "changes_directory": lambda: _doing(lambda: os.chdir("/")),
    "changes_environment": lambda: _doing(os.environ.clear),
    "starts_a_thread": lambda: _doing(_sleep_in_a_thread),
    "changes_signals": lambda: _doing(lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN)),
}


def interrupts() -> Any:
    raise KeyboardInterrupt


def hangs() -> Any:
    os.write(2, b"HANGING\n")
    time.sleep(1e6)


globals().update({name: factory for name, (factory, _) in UNUSABLE.items()} | ODD)
