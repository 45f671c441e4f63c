"""How the user's thread wakes the coordinator's, which waits in ``select``."""

from __future__ import annotations

import contextlib
import socket

from detaug.memory.limits import explained


class Waker:
    """A socket pair of this process. Any thread may wake; one thread waits and drains.

    Raises:
        LimitReached: (an OSError) there are no descriptors for it.
    """

    def __init__(self) -> None:
        try:
            self._read, self._write = socket.socketpair()
        except OSError as error:
            raise explained(error, "the workers cannot be started") from error
        self._read.setblocking(False)
        self._write.setblocking(False)
        self._woken = False

    def fileno(self) -> int:
        """What is readable once the waker was used."""
        return self._read.fileno()

    def wake(self, always: bool = True) -> None:
        """`always`: also where an earlier wake was not seen yet. Ctrl-C may have come between its note and its write."""
        if self._woken and not always:
            return
        self._woken = True
        # It may be full of wakes already, or closed by the thread that would read it.
        with contextlib.suppress(OSError):
            self._write.send(b"!")

    def drain(self) -> None:
        """Take note of all wakes so far."""
        with contextlib.suppress(BlockingIOError):
            self._read.recv(4096)
        # After the read: a thread that finds the note still there has changed something before the coordinator looks at
        # it, which comes next.
        self._woken = False

    def close(self) -> None:
        """Give the descriptors back; waking has no effect from now on."""
        self._read.close()
        self._write.close()
