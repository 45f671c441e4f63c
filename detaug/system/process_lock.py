"""`ProcessLock`: a lock that every process has for itself."""

from __future__ import annotations

import threading

from detaug.system.platform import at_fork


class ProcessLock:
    """A lock that is replaced in a fork, where the thread that holds it may not exist.

    It lives as long as the process: make it where a module is imported.
    """

    def __init__(self) -> None:
        self.current = threading.RLock()
        at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        self.current = threading.RLock()
