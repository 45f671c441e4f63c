"""Augmenters that should share a seed and do not (ranks), and those that share one and should not (train and val)."""

from __future__ import annotations

import json
import logging
import os
import weakref
from collections import Counter
from typing import TYPE_CHECKING, Any

import torch.distributed

from detaug.seeding.tree import Seed

if TYPE_CHECKING:
    from detaug.engine.augmenter import DeterministicAugmenter

logger = logging.getLogger("detaug")

#: After so many batches the other ranks are not asked for any more: some make no such augmenter.
_ASKED_AT_MOST = 32

_started: weakref.WeakSet[DeterministicAugmenter] = weakref.WeakSet()
_said: set[tuple[int, ...]] = set()
_comparisons: Counter[str] = Counter()


class RankSeeds:
    """Compares the seeds of all ranks, where `torch.distributed` is initialised.

    Every rank leaves its seed in the process group's store, under the augmenter's name, and looks there for the others'. Nobody
    waits, for a rank may come later or never: one that does not find all looks again at its next batches.
    """

    def __init__(self, rank: int, world_size: int, name: str, seed: Seed) -> None:
        self._owner = os.getpid()  # the store's connection is this process's, and not a fork's
        self._store: Any = torch.distributed.distributed_c10d._get_default_store()
        _comparisons[name] += 1  # ranks make, and start anew, their augmenters of one name in one order
        self._keys = [f"detaug/seed/{_comparisons[name]}/{each}/{name}" for each in range(world_size)]
        self._rank = rank
        self._store.set(self._keys[rank], json.dumps(seed))
        self._left = _ASKED_AT_MOST

    def compare(self) -> None:
        """Look at the other ranks' seeds; costs nothing once all were seen.

        Raises:
            ValueError: another rank has another seed.
        """
        if self._left <= 0 or os.getpid() != self._owner:
            return
        there = [rank for rank, key in enumerate(self._keys) if self._store.check([key])]
        seeds = {rank: self._store.get(self._keys[rank]).decode() for rank in there}
        if len(set(seeds.values())) > 1:
            told = ", ".join(f"rank {rank} has seed {seed}" for rank, seed in seeds.items())
            raise ValueError(
                f"the ranks of this training have different seeds: {told} (this is rank {self._rank}). Each would take its "
                "steps of another stream, and none of them could be made again with one seed. Pass the same seed on all "
                "ranks; rank= and world_size= see to it that each rank gets its own batches."
            )
        self._left = 0 if len(seeds) == len(self._keys) else self._left - 1


def mention_same_numbers(augmenter: DeterministicAugmenter) -> None:
    """Warn once where another pipeline that is running in this process draws the very same random numbers. A second augmenter of
    the same pipeline is taken for a repetition on purpose."""
    key = tuple(augmenter._tree.entropy)
    for other in list(_started):
        same = (tuple(other._tree.entropy), other.rank) == (key, augmenter.rank)
        if same and other._declared != augmenter._declared and key not in _said:
            _said.add(key)
            which = f"the name {augmenter.name!r}" if augmenter.name else "no name"
            logger.warning(
                "two augmenters of this program, one of %s and one of %s, draw the same random numbers, batch by batch: both "
                'have seed %s and %s. Give each a name of its own, e.g. name="train" and name="val".',
                type(other.generator).__name__,
                type(augmenter.generator).__name__,
                augmenter.seed,
                which,
            )
    _started.add(augmenter)


def no_longer_running(augmenter: DeterministicAugmenter) -> None:
    """It was closed."""
    _started.discard(augmenter)
