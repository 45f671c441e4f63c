"""How the user's thread wakes the coordinator's, which waits in ``select``."""

from __future__ import annotations

import contextlib
import os


class Waker:
    """A pipe of this process. Any thread may wake; one thread waits and drains."""

    def __init__(self) -> None:
        self._read = self._write = -1
        self._woken = False

    def open(self) -> None:
        """Make the pipe.

        Raises:
            OSError: there are no descriptors for it.
        """
        if hasattr(os, "pipe2"):
            self._read, self._write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
            return
        self._read, self._write = os.pipe()
        for descriptor in (self._read, self._write):
            os.set_blocking(descriptor, False)

    def fileno(self) -> int:
        """What is readable once the waker was used."""
        return self._read

    def wake(self, always: bool = True) -> None:
        """`always`: also where an earlier wake was not seen yet. Ctrl-C may have come between its note and its write."""
        if self._woken and not always:
            return
        self._woken = True
        # It may be full of wakes already, or closed by the thread that would read it.
        with contextlib.suppress(OSError):
            os.write(self._write, b"!")

    def drain(self) -> None:
        """Take note of all wakes so far."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._read, 4096)
        # After the read: a thread that finds the note still there has changed something before the coordinator looks at
        # it, which comes next.
        self._woken = False

    def close(self) -> None:
        """Give the descriptors back; waking has no effect from now on."""
        read, write = self._read, self._write
        self._read = self._write = -1
        for descriptor in (read, write):
            if descriptor >= 0:
                os.close(descriptor)
