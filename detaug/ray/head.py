"""Whether the cluster's head is still there."""

from __future__ import annotations

import socket
import time


class HeadWatch:
    """Asks the head's port now and then. Ray itself waits a minute for the head, and then ends the program.

    Args:
        address: host and port of the head's control store.
        patience: seconds for which it may be silent.

    Attributes:
        is_there: whether it answered when it was asked last.
    """

    def __init__(self, address: str, patience: float) -> None:
        self._address = address
        self._patience = patience
        self._checked = self._answered = time.monotonic()
        self.is_there = True

    def lost(self, now: float) -> str:
        """What to tell the user once it has been silent for too long; empty: it has not."""
        if now - self._checked < min(2.0, self._patience / 4):
            return ""
        self._checked = now
        host, _, port = self._address.rpartition(":")
        try:
            with socket.create_connection((host.strip("[]"), int(port)), timeout=1.0):
                self._answered = now
                self.is_there = True
                return ""
        except OSError as error:
            self.is_there = False
            if now - self._answered < self._patience:
                return ""
            return (
                f"the head of the Ray cluster ({self._address}) has not answered for {now - self._answered:.0f} s ({error}). "
                "No more batches come from it, and Ray ends this program a minute after the head: save state_dict() now, and "
                "load it in a program with another cluster or with worker processes of one machine: the batches are the same"
            )
