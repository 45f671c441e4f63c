"""Checks of seeds: ranks must have the same seed, different pipelines must not."""

from __future__ import annotations

import gc
import json
import logging
import os
import weakref
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from detaug.augmenter.rank_agreement import group_store
from detaug.seeding.tree import Seed

logger = logging.getLogger("detaug")

#: A rank looks for rank 0's seed at this many batches. Rank 0 may have no such augmenter.
_MAX_LOOKS = 32

#: By augmenter name: how many comparisons have been made. All ranks start the augmenters of one
#: name in the same order, so that the number identifies one.
_num_comparisons: Counter[str] = Counter()
#: The messages that were logged: the entropy of both augmenters, and whether they have the same
#: pipeline.
_logged: set[tuple[tuple[int, ...], bool]] = set()


class RankSeeds:
    """The comparison of this rank's seed with rank 0's, if `torch.distributed` is initialised.

    Rank 0 writes its seed to the process group's store, under the augmenter's name. No rank waits:
    rank 0 may write later, or never. A rank that does not find the seed looks again at its next
    batches.
    """

    def __init__(self, rank: int, name: str, seed: Seed) -> None:
        self._owner_pid = os.getpid()
        self._store = group_store()
        _num_comparisons[name] += 1
        self._key = f"detaug/seed/{_num_comparisons[name]}/{name}"
        self._rank = rank
        self._seed = json.dumps(seed)
        self._looks_left = _MAX_LOOKS
        if rank == 0:
            self._store.set(self._key, self._seed)
            self._looks_left = 0

    def compare(self) -> None:
        """Compare with rank 0's seed; do nothing once it was the same.

        Raises:
            ValueError: rank 0 has another seed.
        """
        # The store's connection belongs to the process that opened it, and not to its forks.
        if self._looks_left <= 0 or os.getpid() != self._owner_pid:
            return
        self._looks_left -= 1
        # `get` alone would wait until rank 0 has set the key.
        if not self._store.check([self._key]):
            return
        seed_of_rank_0 = self._store.get(self._key).decode()
        if seed_of_rank_0 != self._seed:
            # The next batch raises again.
            self._looks_left = _MAX_LOOKS
            raise ValueError(
                "the ranks of this training have different seeds: rank 0 has seed "
                f"{seed_of_rank_0}, rank {self._rank} has seed {self._seed}. Each would take its "
                "steps from another stream, so no single seed would repeat the training. Pass the "
                "same seed on all ranks; rank= and world_size= give each rank its own batches."
            )
        self._looks_left = 0


@dataclass(frozen=True, eq=False)
class RunningAugmenter:
    """A record of an augmenter that was started in this process, for comparison with later ones.

    Attributes:
        entropy: the seed of all its random numbers, as words.
        rank: the rank whose batches it makes.
        declared: the lines that describe its pipeline.
        source_name: the class of its loader.
        seed: as the user passed it.
        name: as the user passed it.
        is_running: a weak reference to a method that returns whether the augmenter has an engine.
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
    """Log once that another augmenter which runs in this process draws the same random numbers.

    It is a warning if the two have different pipelines. A second augmenter of the same pipeline
    may be a repetition on purpose.
    """
    if any(_runs(other) and other.draws_same_numbers(augmenter) for other in _running):
        # An augmenter that nothing refers to, in a cycle, would still count as running.
        gc.collect()
    for other in list(_running):
        if other.is_running() is None:
            _running.remove(other)
        elif _runs(other) and other.draws_same_numbers(augmenter):
            _log_once(other, augmenter)
    # One record for each augmenter, which may have loaded another seed since its last start.
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
            "have the same pipeline (of %s), seed %s and name=%r. If they should differ, give each "
            'a name of its own, e.g. name="train" and name="val".',
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
