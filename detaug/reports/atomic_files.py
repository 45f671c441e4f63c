"""Files that are there whole or not at all, whenever the process or the machine stops."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import psutil


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write, under another name until the end of the block, so that a reader finds the old file or the new one.

    Raises:
        OSError: it cannot be written; what was there before is still there.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with open(partial, "wb") as file:
            yield file
            # The name must not be there before the bytes are: a machine that stops may keep one without the other.
            file.flush()
            os.fsync(file.fileno())
            # While it is open: a lock that its writer holds on it lasts until it has its name.
            os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def remove_unfinished(folder: Path) -> None:
    """Remove what writers that were killed have left of `whole_file` in a folder."""
    for partial in folder.glob(".*.partial"):
        process = partial.name.split(".")[-2]
        if process.isdecimal() and not psutil.pid_exists(int(process)):
            partial.unlink(missing_ok=True)
