"""Where in the user's code a worker is when it has not been heard of for long.

The worker has the C library of Python (`faulthandler`) write its stack into a block of shared memory when it gets a certain
signal; that works also while it holds the interpreter's lock in a call that does not come back. The parent reads the text.
"""

from __future__ import annotations

import faulthandler
import itertools
import os
import re
import signal
from pathlib import Path

import psutil

import detaug
from detaug.memory.blocks import create

#: None where there are no real-time signals: nothing can be asked there.
ASKING = signal.SIGRTMIN + 7 if hasattr(signal, "SIGRTMIN") else None

_FRAME = re.compile(r'^  File "(.*)", line (\d+) in (.*)$', re.MULTILINE)
_PACKAGE = Path(detaug.__file__).parent
#: The user's code begins behind these frames.
_OURS = tuple(str(_PACKAGE / room) for room in ("pipeline", "engine", "sources"))
_MOST_FRAMES = 4


def answer_from_now_on() -> int | None:
    """The worker's side: the block's descriptor, to be sent to the parent; None where there is none to spare."""
    try:
        descriptor = create(1)
    except OSError:
        return None
    if ASKING is not None:
        faulthandler.register(ASKING, file=descriptor, all_threads=False, chain=False)
    return descriptor


class Whereabouts:
    """The parent's side; `close` closes the block's descriptor."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def forget(self) -> None:
        """Drop an older answer."""
        # The worker writes at the position that both descriptors share.
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        os.ftruncate(self._descriptor, 0)

    def answer(self) -> str:
        """``"__call__ (slow.py:12), called from __call__ (compose.py:30)"``; empty while there is none."""
        text = os.pread(self._descriptor, 65536, 0).decode(errors="replace")
        return place_of(text) if text.endswith("\n") else ""

    def close(self) -> None:
        """Give the block back."""
        os.close(self._descriptor)


def place_of(stack: str) -> str:
    """The user's part of a stack as `faulthandler` writes it (innermost frame first)."""
    frames = _FRAME.findall(stack)
    users = [*itertools.takewhile(lambda frame: not frame[0].startswith(_OURS), frames)] or frames[:1]
    return ", called from ".join(f"{name} ({file}:{line})" for file, line, name in users[:_MOST_FRAMES])


def state_of(pid: int) -> str:
    """What the kernel says of a process that does not answer; empty where that explains nothing."""
    try:
        status = psutil.Process(pid).status()
    except (OSError, psutil.Error):
        return ""
    return {
        psutil.STATUS_STOPPED: "it is stopped (SIGSTOP; SIGCONT continues it)",
        psutil.STATUS_TRACING_STOP: "a debugger has stopped it",
        psutil.STATUS_DISK_SLEEP: "it waits in the kernel and cannot be interrupted (a stuck file system or disk?)",
    }.get(status, "")
