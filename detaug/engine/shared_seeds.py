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

#: After so many batches rank 0 is not asked for any more: it may make no such augmenter.
_ASKED_AT_MOST = 32

_comparisons: Counter[str] = Counter()
_started: weakref.WeakSet[DeterministicAugmenter] = weakref.WeakSet()
_said: set[tuple[int, ...]] = set()


class RankSeeds:
    """Compares the seeds of all ranks with rank 0's, where `torch.distributed` is initialised.

    Rank 0 leaves its seed in the process group's store, under the augmenter's name. Nobody waits, for it may come later or never:
    a rank that does not find it looks again at its next batches.
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
                f"the ranks of this training have different seeds: rank 0 has seed {first}, rank {self._rank} has seed "
                f"{self._seed}. Each would take its steps of another stream, and none of them could be made again with one "
                "seed. Pass the same seed on all ranks; rank= and world_size= see to it that each rank gets its own batches."
            )
        self._left = 0


def mention_same_numbers(augmenter: DeterministicAugmenter) -> None:
    """Warn once where another pipeline that is running in this process draws the very same random numbers. A second augmenter of
    the same pipeline is taken for a repetition on purpose."""
    key = tuple(augmenter._tree.entropy)
    for other in list(_started):
        same = other._engine is not None and (tuple(other._tree.entropy), other.rank) == (
            key,
            augmenter.rank,
        )
        if same and other._declared != augmenter._declared and key not in _said:
            _said.add(key)
            logger.warning(
                "two augmenters of this program, one of %s and one of %s, draw the same random numbers, batch by batch: both "
                'have seed %s and name=%r. Give each a name of its own, e.g. name="train" and name="val".',
                other._source.class_name,
                augmenter._source.class_name,
                augmenter.seed,
                augmenter.name,
            )
    _started.add(augmenter)
