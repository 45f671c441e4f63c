"""Loaders of the stress suite, and what their batches must be. Importable by workers of every start
method.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch

import detaug
from detaug import DeterministicAugmenter, LocalProcesses, fingerprint
from tests.processes.engine.misbehaving import ENDINGS, REPORTS
from tests.support.faults import once

SEED = 20
NUM_STREAMS = 6
_chance = random.SystemRandom()


class Endless:
    """Keeps nothing between batches; takes a few milliseconds that no seed governs.

    Args:
        seconds: at most, per batch.
    """

    stateless = True

    def __init__(self, seconds: float = 0.004) -> None:
        self._seconds = seconds

    def __iter__(self) -> Endless:
        return self

    def __next__(self) -> dict[str, Any]:
        time.sleep(_chance.uniform(0.0, self._seconds))
        now = detaug.current()
        return {
            "data": np.random.standard_normal((2, 1, 16, 16, 16)).astype(np.float32),
            "labels": torch.randint(0, 4, (2, 1, 16, 16, 16), dtype=torch.int16),
            "python": random.random(),
            "own": now.generator.integers(2**62),
            "where": (now.epoch, now.step),
        }


class Counting(Endless):
    """Holds state: its streams count their batches and walk at random."""

    stateless = False

    def __init__(self, seconds: float = 0.004) -> None:
        super().__init__(seconds)
        self._count, self._place = 0, 0.0

    def __next__(self) -> dict[str, Any]:
        self._count += 1
        self._place += np.random.standard_normal()
        return {**super().__next__(), "count": self._count, "place": self._place}


class EndsItsProcess(Endless):
    """At some steps its process ends, each time in another way, and only once.

    Args:
        folder: where it is remembered what has happened.
        every: steps from one to the next.
    """

    def __init__(self, folder: str, every: int) -> None:
        super().__init__()
        self._folder, self._every = folder, every

    def __next__(self) -> dict[str, Any]:
        batch = super().__next__()
        step = detaug.current().step
        if step % self._every == self._every - 1 and once(f"{self._folder}/{step}"):
            ENDINGS[[*REPORTS][step // self._every % len(REPORTS)]]()
        return batch


def made(loader: Endless, num_processes: int, **options: Any) -> DeterministicAugmenter:
    """An augmenter of that loader, with what the suite has in common."""
    executor = LocalProcesses(max_restarts=1000) if num_processes else None
    given = {
        "seed": SEED,
        "num_streams": NUM_STREAMS,
        "stateless": loader.stateless,
        "executor": executor,
        **options,
    }
    return DeterministicAugmenter(loader, None, num_processes, **given)


def prints(batches: Iterable[Any]) -> list[str]:
    """Their fingerprints."""
    return [fingerprint(batch) for batch in batches]


def undisturbed(kind: type[Endless], number: int) -> list[str]:
    """The fingerprints of the first `number` batches, made in this process."""
    with made(kind(0.0), 0) as augmenter:
        return prints(next(augmenter) for _ in range(number))
