"""Stops or kills worker processes while their batches are taken."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from detaug.engine.augmenter import DeterministicAugmenter
from detaug.engine.inspection import inspected

#: How many workers may be hit while they start: fewer than make the engine give up.
_MOST_UNREADY = 5


class Disturbance:
    """Sends signals to random workers at random times, and before batches.

    Args:
        kill: SIGKILL; else SIGSTOP, and SIGCONT a random time later.
        rng: decides which worker and when.
        most: no more than this many times.
    """

    def __init__(self, kill: bool, rng: random.Random, most: int) -> None:
        self.times = 0
        self._kill = kill
        self._rng = rng
        self._most = most
        self._unready = 0
        self._over = threading.Event()

    @contextmanager
    def of(self, augmenter: DeterministicAugmenter) -> Iterator[None]:
        """Inside, that augmenter's workers are disturbed."""
        thread = threading.Thread(target=self._disturb, args=(augmenter,), name="detaug-disturbance", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            # A worker that the thread has just stopped is continued before it ends: none is left stopped for `close`.
            thread.join()

    def _disturb(self, augmenter: DeterministicAugmenter) -> None:
        while not self._over.wait(self._rng.uniform(0.001, 0.03)) and self.times < self._most:
            self.strike(augmenter)

    def strike(self, augmenter: DeterministicAugmenter) -> None:
        """Disturb one worker now, if there is one."""
        engine = inspected(augmenter).engine
        # Workers that are still starting are hit as well, but only a few: else no worker would ever be ready.
        pids = engine.worker_pids(ready=self._unready >= _MOST_UNREADY) if engine is not None else []
        if engine is None or not pids:
            return
        pid = self._rng.choice(pids)
        # Asked again before the signal, after which it would be in no list. One that has become ready in between was hit
        # while it was ready.
        self._unready += pid not in engine.worker_pids(ready=True)
        try:
            if self._kill:
                os.kill(pid, signal.SIGKILL)
            else:
                os.kill(pid, signal.SIGSTOP)
                self._over.wait(self._rng.uniform(0.001, 0.1))
                os.kill(pid, signal.SIGCONT)
            self.times += 1
        except ProcessLookupError:
            pass  # it had just ended
