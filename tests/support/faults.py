"""Loaders and transforms that misbehave in one way each. Importable by workers of every start
method.
"""

from __future__ import annotations

import errno
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import detaug
from tests.support.loaders import RandomLoader
from tests.support.waiting import PATIENCE
from tests.support.witness import WITNESS, witness


class ReaderError(Exception):
    """The user's own, with a constructor of two arguments, so that plain pickling cannot rebuild
    it.
    """

    def __init__(self, file: str, line: int) -> None:
        super().__init__(f"{file} is broken in line {line}")
        self.file, self.line = file, line


class UnpicklableError(ValueError):
    """An exception that holds what no pickler takes."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.lock = threading.Lock()


def read_the_broken_case(error: BaseException) -> None:
    raise error


def make_error(kind: str) -> BaseException:
    errors: dict[str, BaseException] = {
        "value": ValueError("voxel spacing is zero"),
        "key": KeyError("case_017"),
        "reader": ReaderError("case_017.nii.gz", 3),
        "unpicklable": UnpicklableError("holds a lock"),
        "assertion": AssertionError(),
        "memory": MemoryError("no room for case_017"),
        "file": FileNotFoundError(errno.ENOENT, "No such file or directory", "case_017.nii.gz"),
    }
    return errors[kind]


class RaisesAt(RandomLoader):
    """Raises at given steps of given epochs, whichever process makes them."""

    def __init__(
        self, steps: tuple[int, ...], kind: str = "value", epochs: tuple[int, ...] = (0,)
    ) -> None:
        super().__init__()
        self.steps, self.kind, self.epochs = steps, kind, epochs

    def generate_train_batch(self) -> dict[str, Any]:
        now = detaug.current()
        if now.step in self.steps and now.epoch in self.epochs:
            read_the_broken_case(make_error(self.kind))
        return super().generate_train_batch()


class TransformRaisesAt:
    def __init__(self, steps: tuple[int, ...], kind: str = "value") -> None:
        self.steps, self.kind = steps, kind

    def __call__(self, **batch: Any) -> dict[str, Any]:
        if detaug.current().step in self.steps:
            read_the_broken_case(make_error(self.kind))
        return batch


def once(flag: str) -> bool:
    """True for the first caller on this machine that names the flag, and False ever after."""
    try:
        os.close(os.open(flag, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


class LethalToPickle:
    """Kills, once, the process that pickles it."""

    def __init__(self, flag: str) -> None:
        self.flag = flag

    def __reduce__(self) -> Any:
        if once(self.flag):
            os.kill(os.getpid(), signal.SIGKILL)
            # The signal is on its way.
            threading.Event().wait(PATIENCE)
            raise AssertionError(f"SIGKILL did not end this process within {PATIENCE:g} s")
        return LethalToPickle, (self.flag,)


class DiesInPickling(RandomLoader):
    """Its process dies in the middle of handing over the batch of one step."""

    def __init__(self, step: int, flag: str) -> None:
        super().__init__()
        self._step, self._flag = step, flag

    def generate_train_batch(self) -> dict[str, Any]:
        batch = super().generate_train_batch()
        if detaug.current().step == self._step:
            batch["lethal"] = LethalToPickle(self._flag)
        return batch


class Recorder(RandomLoader):
    """Leaves a file per batch it makes, so that a test sees what was made when and how often."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        self._folder = folder

    def generate_train_batch(self) -> dict[str, Any]:
        now = detaug.current()
        batch = super().generate_train_batch()
        Path(self._folder, f"{now.epoch}-{now.step}-{os.getpid()}-{time.monotonic_ns()}").touch()
        return batch


class Chatty(RandomLoader):
    """Holds what no pickler takes under a key of the batch."""

    def generate_train_batch(self) -> dict[str, Any]:
        return {
            "data": super().generate_train_batch()["numpy"],
            "handle": threading.Lock(),
            WITNESS: witness(),
        }
