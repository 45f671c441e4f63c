"""Signals to random processes at random moments, from a thread beside the loop that takes the batches."""

from __future__ import annotations

import os
import random
import threading
import time
from typing import Any

from detaug import DeterministicAugmenter

_PATIENCE = 30  # seconds


class Injector:
    """Sends a signal each time it is told to, at most `within` seconds later. `seed` is that of the moments and victims."""

    def __init__(self, augmenter: DeterministicAugmenter, number: int, seed: int, within: float = 0.03) -> None:
        self.sent = 0
        self._augmenter = augmenter
        self._number = number
        self._chance = random.Random(seed)
        self._within = within
        self._timer = threading.Timer(0, lambda: None)
        self._timer.start()

    def order(self) -> None:
        """A signal soon, once the one before has been sent."""
        self._timer.join(_PATIENCE)
        self._timer = threading.Timer(self._chance.uniform(0.0, self._within), self._send)
        self._timer.start()

    @property
    def at_rest(self) -> bool:
        """Whether all that was ordered has been sent."""
        return not self._timer.is_alive()

    def _send(self) -> None:
        engine: Any = self._augmenter._engine
        deadline = time.monotonic() + _PATIENCE
        while time.monotonic() < deadline:
            try:
                os.kill(self._chance.choice(sorted(engine.worker_pids())), self._number)
            except (IndexError, ProcessLookupError):  # there is no worker at this moment
                time.sleep(0.005)
            else:
                self.sent += 1
                return
