"""Signals to random processes at random moments, from a thread beside the loop that takes the batches."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from detaug import DeterministicAugmenter


class Injector:
    """Sends one signal each time it is told to, some moments later.

    Args:
        augmenter: whose processes are meant.
        number: the signal.
        seed: of the random moments and victims.
        within: a signal comes at most so many seconds after it was ordered.
    """

    def __init__(self, augmenter: DeterministicAugmenter, number: int, seed: int, within: float = 0.03) -> None:
        self.sent = 0
        self._augmenter = augmenter
        self._number = number
        self._chance = random.Random(seed)
        self._within = within
        self._ordered = threading.Semaphore(0)
        self._sent = threading.Event()
        self._sent.set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def order(self) -> None:
        """A signal soon, once the one before has been sent."""
        self._sent.wait(30)
        self._sent.clear()
        self._ordered.release()

    @property
    def at_rest(self) -> bool:
        """Whether all that was ordered has been sent."""
        return self._sent.is_set()

    @contextmanager
    def at_work(self) -> Iterator[Injector]:
        """Inside, orders are carried out."""
        self._thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            self._ordered.release()
            self._thread.join()

    def _run(self) -> None:
        while True:
            self._ordered.acquire()
            if self._stop.wait(self._chance.uniform(0.0, self._within)):
                return
            while not self._send() and not self._stop.wait(0.005):
                pass
            self._sent.set()

    def _send(self) -> bool:
        engine: Any = self._augmenter._engine
        victims = engine.worker_pids()
        if not victims:
            return False
        try:
            os.kill(self._chance.choice(sorted(victims)), self._number)
        except ProcessLookupError:
            return False
        self.sent += 1
        return True


def name_of(number: int) -> str:
    """``"SIGKILL"``."""
    return signal.Signals(number).name
