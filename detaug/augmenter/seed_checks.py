"""Augmenters that should share a seed and do not (ranks), and those that share one and should not
(train and val).
"""

from __future__ import annotations

import gc
import json
import logging
import os
import weakref
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch.distributed

from detaug.seeding.tree import Seed

logger = logging.getLogger("detaug")

#: After so many batches rank 0 is not asked for any more: it may make no such augmenter.
_ASKED_AT_MOST = 32

_comparisons: Counter[str] = Counter()
#: What was logged: the entropy of both augmenters, and whether they have the same pipeline.
_logged: set[tuple[tuple[int, ...], bool]] = set()


class RankSeeds:
    """Compares the seeds of all ranks with rank 0's, where `torch.distributed` is initialised.

    Rank 0 leaves its seed in the process group's store, under the augmenter's name. Nobody waits,
    for it may come later or never: a rank that does not find it looks again at its next batches.
    """

    def __init__(self, rank: int, name: str, seed: Seed) -> None:
        self._owner = os.getpid()  # the store's connection is this process's, and not a fork's
        self._store: Any = torch.distributed.distributed_c10d._get_default_store()
        _comparisons[name] += (
            1  # ranks make, and start anew, their augmenters of one name in one order
        )
        self._key = f"detaug/seed/{_comparisons[name]}/{name}"
        self._rank = rank
        self._seed = json.dumps(seed)
        if rank == 0:
            self._store.set(self._key, self._seed)
        self._left = 0 if rank == 0 else _ASKED_AT_MOST

    def compare(self) -> None:
        """Look at rank 0's seed; costs nothing once it was the same.

        Raises:
            ValueError: it is another.
        """
        if self._left <= 0 or os.getpid() != self._owner:
            return
        self._left -= 1
        if not self._store.check([self._key]):
            return
        if (first := self._store.get(self._key).decode()) != self._seed:
            self._left = _ASKED_AT_MOST
            raise ValueError(
                f"the ranks of this training have different seeds: rank 0 has seed {first}, rank "
                f"{self._rank} has seed "
                f"{self._seed}. Each would take its steps of another stream, and none of them "
                "could be made again with one "
                "seed. Pass the same seed on all ranks; rank= and world_size= see to it that each "
                "rank gets its own batches."
            )
        self._left = 0


@dataclass(frozen=True, eq=False)
class RunningAugmenter:
    """An augmenter that draws numbers in this process, as others are compared with it.

    Attributes:
        entropy: the seed of all its numbers.
        rank: whose batches it makes.
        declared: the lines that describe its pipeline.
        source_name: the class of its loader.
        seed: as the user gave it.
        name: as the user gave it.
        is_running: returns whether it has an engine; None once it is gone.
    """

    entropy: tuple[int, ...]
    rank: int
    declared: tuple[str, ...]
    source_name: str
    seed: Seed
    name: str
    is_running: weakref.WeakMethod[Callable[[], bool]]

    def draws_same_numbers(self, other: RunningAugmenter) -> bool:
        """Return whether both draw the same numbers for their batches."""
        return (self.entropy, self.rank) == (other.entropy, other.rank)


_running: list[RunningAugmenter] = []


def _runs(augmenter: RunningAugmenter) -> bool:
    """Return whether an augmenter still exists and has an engine."""
    is_running = augmenter.is_running()
    return is_running is not None and is_running()


def log_shared_seed(augmenter: RunningAugmenter) -> None:
    """Log once where another augmenter that runs in this process draws the same random numbers.

    It is a warning where the two have different pipelines. A second augmenter of the same pipeline
    may be a repetition on purpose.
    """
    if any(_runs(other) and other.draws_same_numbers(augmenter) for other in _running):
        gc.collect()  # one that nobody refers to any more may wait for it
    for other in list(_running):
        if other.is_running() is None:
            _running.remove(other)
        elif _runs(other) and other.draws_same_numbers(augmenter):
            _log_once(other, augmenter)
    earlier_records = [record for record in _running if record.is_running == augmenter.is_running]
    for record in earlier_records:
        _running.remove(record)
    _running.append(augmenter)


def _log_once(first: RunningAugmenter, second: RunningAugmenter) -> None:
    """Log that two augmenters draw the same numbers, unless it was logged for this seed."""
    is_repetition = first.declared == second.declared
    if (second.entropy, is_repetition) in _logged:
        return
    _logged.add((second.entropy, is_repetition))
    if is_repetition:
        logger.info(
            "two augmenters of this program that run at the same time give the same batches: both "
            "have the same pipeline (of %s), seed %s and name=%r. If they are not to repeat each "
            'other, give each a name of its own, e.g. name="train" and name="val".',
            second.source_name,
            second.seed,
            second.name,
        )
        return
    logger.warning(
        "two augmenters of this program, one of %s and one of %s, draw the same random numbers, "
        "batch by batch: both have seed %s and name=%r. Give each a name of its own, e.g. "
        'name="train" and name="val".',
        first.source_name,
        second.source_name,
        second.seed,
        second.name,
    )
