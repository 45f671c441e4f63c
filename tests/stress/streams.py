"""Loaders of the stress suite, and the batches of an undisturbed run.

The module can be imported by workers of every start method.
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
_SHAPE = (2, 1, 16, 16, 16)
#: No seed governs it.
_clock_noise = random.SystemRandom()


class Endless:
    """A loader that keeps nothing between batches, and whose batches take random times.

    Args:
        seconds: a batch takes at most this long.
    """

    stateless = True

    def __init__(self, seconds: float = 0.004) -> None:
        self._seconds = seconds

    def __iter__(self) -> Endless:
        return self

    def __next__(self) -> dict[str, Any]:
        time.sleep(_clock_noise.uniform(0.0, self._seconds))
        current = detaug.current()
        return {
            "data": np.random.standard_normal(_SHAPE).astype(np.float32),
            "labels": torch.randint(0, 4, _SHAPE, dtype=torch.int16),
            "python": random.random(),
            "own": current.generator.integers(2**62),
            "position": (current.epoch, current.step),
        }


class Counting(Endless):
    """A loader with state: each of its streams counts its batches and walks at random."""

    stateless = False

    def __init__(self, seconds: float = 0.004) -> None:
        super().__init__(seconds)
        self._count = 0
        self._place = 0.0

    def __next__(self) -> dict[str, Any]:
        self._count += 1
        self._place += np.random.standard_normal()
        return {**super().__next__(), "count": self._count, "place": self._place}


class EndsItsProcess(Endless):
    """A loader that ends its process at some steps, once at each, every time in another way.

    Args:
        folder: where it records the steps at which it has done so.
        every: steps from one end to the next.
    """

    def __init__(self, folder: str, every: int) -> None:
        super().__init__()
        self._folder = folder
        self._every = every

    def __next__(self) -> dict[str, Any]:
        batch = super().__next__()
        step = detaug.current().step
        if step % self._every == self._every - 1 and once(f"{self._folder}/{step}"):
            ways = list(REPORTS)
            way = ways[step // self._every % len(ways)]
            ENDINGS[way]()
        return batch


def make_augmenter(loader: Endless, num_processes: int, **options: Any) -> DeterministicAugmenter:
    """Return an augmenter of a loader, with the suite's seed and streams.

    Args:
        loader: the loader.
        num_processes: number of workers.
        options: further arguments of `DeterministicAugmenter`.
    """
    arguments = {
        "seed": SEED,
        "num_streams": NUM_STREAMS,
        "stateless": loader.stateless,
        **options,
    }
    if num_processes:
        arguments.setdefault("executor", LocalProcesses(max_restarts=1000))
    return DeterministicAugmenter(loader, None, num_processes, **arguments)


def fingerprints(batches: Iterable[Any]) -> list[str]:
    """Return the fingerprint of each batch."""
    return [fingerprint(batch) for batch in batches]


def undisturbed(kind: type[Endless], number: int) -> list[str]:
    """Return the fingerprints of the first `number` batches, made in this process."""
    with make_augmenter(kind(0.0), 0) as augmenter:
        return fingerprints(next(augmenter) for _ in range(number))
