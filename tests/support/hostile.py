"""Factories that misbehave, for the tests of every command that takes a factory."""

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
    """An endless loader of random images."""

    def __init__(self) -> None:
        super().__init__(None, 2, infinite=True)

    def generate_train_batch(self) -> dict[str, Any]:
        return {"data": np.random.random((2, 1, 8, 8)).astype(np.float32)}


def sound() -> Any:
    """Return a pipeline without a fault."""
    return Loader(), None


class Unprintable(Exception):
    """An error whose text cannot be read."""

    def __str__(self) -> str:
        raise RuntimeError


def raises() -> Any:
    raise RuntimeError("no data\nat /nowhere")


def unprintable() -> Any:
    raise Unprintable


def exits() -> Any:
    sys.exit(3)


def wants_arguments(folder: str) -> Any:
    return folder


def none() -> Any:
    return None


def a_loader_alone() -> Any:
    return Loader()


def prints() -> Any:
    print("NOISE")
    os.write(1, b"NOISE\n")
    return sound()


def changes_directory() -> Any:
    os.chdir("/")
    return sound()


def changes_environment() -> Any:
    os.environ.clear()
    return sound()


def starts_a_thread() -> Any:
    threading.Thread(target=time.sleep, args=(1e6,), daemon=True).start()
    return sound()


def changes_signals() -> Any:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    return sound()


#: Name -> (factory, part of the message). Every command that calls one of them exits with 2.
UNUSABLE: dict[str, tuple[Any, str]] = {
    "raises": (raises, "raises RuntimeError: no data at /nowhere ("),
    "unprintable": (unprintable, "Unprintable"),
    "exits": (exits, "ends the program: sys.exit(3)"),
    "wants_arguments": (wants_arguments, "raises TypeError: "),
    "none": (none, "it returned NoneType"),
    "a_loader_alone": (a_loader_alone, "return (it, None)"),
}

#: Name -> factory that returns a sound pipeline, but has a side effect.
ODD: dict[str, Any] = {
    "prints": prints,
    "changes_directory": changes_directory,
    "changes_environment": changes_environment,
    "starts_a_thread": starts_a_thread,
    "changes_signals": changes_signals,
}


def interrupts() -> Any:
    raise KeyboardInterrupt


def hangs() -> Any:
    os.write(2, b"HANGING\n")
    time.sleep(1e6)
