"""Runs an example as a program that is killed where it prints a step's line.

until.py LINE SCRIPT ARGUMENTS...: SIGKILL directly after the line with this number, 0: none. Of
several ranks each line begins with its rank.
"""

from __future__ import annotations

import contextlib
import os
import runpy
import signal
import sys
from pathlib import Path

import torch


class Lines:
    """A standard output that lets `last` lines of steps pass, and kills the process."""

    def __init__(self, last: int) -> None:
        self.left, self.begun = last, ""
        self.start = f"{os.environ['RANK']} " if os.environ.get("WORLD_SIZE", "1") != "1" else ""

    def write(self, text: str) -> int:
        *lines, self.begun = (self.begun + text).split("\n")
        for line in lines:
            os.write(1, f"{self.start}{line}\n".encode())
            if line.startswith("slices"):
                self.left -= 1
                if not self.left:
                    os.kill(os.getpid(), signal.SIGKILL)
        return len(text)

    def flush(self) -> None:
        pass

    def isatty(self) -> bool:
        return False


def main() -> None:
    # OMP_NUM_THREADS is read when torch is imported, which the interpreter did that forked this.
    torch.set_num_threads(1)
    last, *sys.argv = sys.argv[1:]
    sys.path[0] = str(Path(sys.argv[0]).parent)
    with contextlib.redirect_stdout(Lines(int(last))):  # type: ignore[type-var]
        runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
