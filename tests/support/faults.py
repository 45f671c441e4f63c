"""Loaders and transforms that misbehave in one way each.

Workers of every start method can import this module.
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
    """A user's exception that can be pickled but not unpickled.

    `BaseException.__reduce__` keeps the message alone, and the constructor wants two arguments.
    """

    def __init__(self, file: str, line: int) -> None:
        super().__init__(f"{file} is broken in line {line}")
        self.file = file
        self.line = line


class UnpicklableError(ValueError):
    """An exception that cannot be pickled, as it holds a lock."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.lock = threading.Lock()


def read_the_broken_case(error: BaseException) -> None:
    """Raise an error from a function whose name tests find in the traceback."""
    raise error


def make_error(kind: str) -> BaseException:
    """Return the exception with this name."""
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
    """A loader that raises at some steps of some epochs, in whichever process."""

    def __init__(
        self, steps: tuple[int, ...], kind: str = "value", epochs: tuple[int, ...] = (0,)
    ) -> None:
        super().__init__()
        self.steps = steps
        self.kind = kind
        self.epochs = epochs

    def generate_train_batch(self) -> dict[str, Any]:
        context = detaug.current()
        if context.step in self.steps and context.epoch in self.epochs:
            read_the_broken_case(make_error(self.kind))
        return super().generate_train_batch()


class TransformRaisesAt:
    """A transform that raises at some steps of every epoch."""

    def __init__(self, steps: tuple[int, ...], kind: str = "value") -> None:
        self.steps = steps
        self.kind = kind

    def __call__(self, **batch: Any) -> dict[str, Any]:
        if detaug.current().step in self.steps:
            read_the_broken_case(make_error(self.kind))
        return batch


def once(flag: str) -> bool:
    """Return whether this is the first call with this flag on this machine.

    Args:
        flag: path of the file that marks the first call.
    """
    try:
        os.close(os.open(flag, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


class LethalToPickle:
    """An object that kills the first process that pickles it, and no other."""

    def __init__(self, flag: str) -> None:
        self.flag = flag

    def __reduce__(self) -> Any:
        if once(self.flag):
            os.kill(os.getpid(), signal.SIGKILL)
            # The signal may arrive a moment later, and nothing may be pickled meanwhile.
            threading.Event().wait(PATIENCE)
            raise AssertionError(f"SIGKILL did not end this process within {PATIENCE:g} s")
        return LethalToPickle, (self.flag,)


class DiesInPickling(RandomLoader):
    """A loader whose process dies, once, while it pickles the batch of one step."""

    def __init__(self, step: int, flag: str) -> None:
        super().__init__()
        self._step = step
        self._flag = flag

    def generate_train_batch(self) -> dict[str, Any]:
        batch = super().generate_train_batch()
        if detaug.current().step == self._step:
            batch["lethal"] = LethalToPickle(self._flag)
        return batch


class Recorder(RandomLoader):
    """A loader that leaves a file per batch.

    The files' names show which batches were made, how often, by which process and when.
    """

    def __init__(self, folder: str) -> None:
        super().__init__()
        self._folder = folder

    def generate_train_batch(self) -> dict[str, Any]:
        context = detaug.current()
        batch = super().generate_train_batch()
        name = f"{context.epoch}-{context.step}-{os.getpid()}-{time.monotonic_ns()}"
        Path(self._folder, name).touch()
        return batch


class Chatty(RandomLoader):
    """A loader whose batches cannot be pickled, as they hold a lock."""

    def generate_train_batch(self) -> dict[str, Any]:
        return {
            "data": super().generate_train_batch()["numpy"],
            "handle": threading.Lock(),
            WITNESS: witness(),
        }
