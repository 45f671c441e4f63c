"""Run an example as a program that is killed where it prints the line of a step.

until.py STEP SCRIPT ARGUMENTS...: SIGKILL comes directly after the line of this step; 0: never. If
there are several ranks, each line begins with its rank.
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
    """A standard output that passes lines on and kills the process after a step's line.

    Args:
        killed_at: number of the step, from 1; 0: the process is not killed.
    """

    def __init__(self, killed_at: int) -> None:
        self._killed_at = killed_at
        self._num_steps = 0
        self._unfinished = ""
        self._prefix = ""
        if os.environ.get("WORLD_SIZE", "1") != "1":
            self._prefix = f"{os.environ['RANK']} "

    def write(self, text: str) -> int:
        """Pass the finished lines on, and keep what follows the last one."""
        *lines, self._unfinished = (self._unfinished + text).split("\n")
        for line in lines:
            os.write(1, f"{self._prefix}{line}\n".encode())
            if not line.startswith("slices"):
                continue
            self._num_steps += 1
            if self._num_steps == self._killed_at:
                os.kill(os.getpid(), signal.SIGKILL)
        return len(text)

    def flush(self) -> None:
        """Do nothing: lines are written at once."""

    def isatty(self) -> bool:
        """Return False."""
        return False


def main() -> None:
    """Run the script with its arguments."""
    # torch reads OMP_NUM_THREADS when it is imported. The interpreter of which this process is a
    # fork has done that before the variable was set.
    torch.set_num_threads(1)
    killed_at, *sys.argv = sys.argv[1:]
    sys.path[0] = str(Path(sys.argv[0]).parent)
    with contextlib.redirect_stdout(Lines(int(killed_at))):  # type: ignore[type-var]
        runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
