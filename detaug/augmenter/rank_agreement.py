"""Messages between the ranks of a training about a loader: rank 0's drawn seed and first batch.

They go through the process group's store. Rank 0 writes and never waits, so that a loader of rank 0
alone (for a validation) is not delayed.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from typing import Any

import torch
import torch.distributed

from detaug.objects.fingerprints import fingerprint_or_none
from detaug.seeding.ranks import RankUnknown, process_group

logger = logging.getLogger("detaug")

#: By loader name: how many loaders have drawn a seed. All ranks make the loaders of one name in the
#: same order, so that the number identifies a loader.
_num_draws: Counter[str] = Counter()


def drawn_seed(name: str, rank: int, world_size: int) -> int:
    """Return a seed from torch's default generator; ranks that share batches get rank 0's.

    Args:
        name: the loader's branch of the seed tree.
        rank, world_size: of the ranks that share its batches; 0 and 1 if none do.

    Raises:
        RankUnknown: (a ValueError) there is no process group through which the ranks could agree,
            or rank 0 has drawn no seed.
    """
    if world_size == 1:
        return _draw()
    advice = "pass seed=... on all ranks, or set DETAUG_SEED"
    if process_group() is None:
        raise RankUnknown(
            f"{world_size} ranks share the batches of the loader {name!r}, no seed was given, and "
            f"without a process group each would draw a different one: {advice}, or call "
            "torch.distributed.init_process_group first"
        )
    # A new key for each draw: the store keeps earlier seeds as long as the group exists.
    _num_draws[name] += 1
    key = f"detaug/drawn/{_num_draws[name]}/{name}"
    if rank == 0:
        seed = _draw()
        group_store().set(key, str(seed))
        return seed
    try:
        seed = int(group_store().get(key))
    except RuntimeError as error:
        # A timeout: torch's DistStoreError.
        raise RankUnknown(
            f"rank {rank} of {world_size} did not get the seed that rank 0 draws for the loader "
            f"{name!r}: every rank must read this loader. Otherwise {advice}"
        ) from error
    logger.info("seed=%d (rank 0's, for the loader %r)", seed, name)
    return seed


def _draw() -> int:
    """Return a seed from torch's default generator, and log it."""
    seed = int(torch.empty((), dtype=torch.int64).random_().item())
    logger.info("seed=%d (drawn from torch's default generator; pass it to repeat the run)", seed)
    return seed


class FirstBatches:
    """The comparison of the ranks' first batches, if each rank reads a loader of its own."""

    def __init__(self, name: str, rank: int, world_size: int) -> None:
        self._name = name
        self._rank = rank
        self._world_size = world_size
        self._owner_pid = os.getpid()
        self._is_compared = False

    @classmethod
    def here(cls, name: str) -> FirstBatches | None:
        """Return a comparison for the loader of this name; None if there is one rank."""
        group = process_group()
        if group is None or group[1] == 1:
            return None
        return cls(name, *group)

    def compare(self, batch: Any) -> None:
        """Store the first batch, and warn if another rank has stored the same; one rank warns.

        Args:
            batch: the one that this rank has got. Only the first counts.
        """
        # The store's connection belongs to the process that opened it, and not to its forks.
        if self._is_compared or os.getpid() != self._owner_pid:
            return
        self._is_compared = True
        first = fingerprint_or_none(batch)
        if first is None:
            return
        # The batch itself is the key, and the store decides who was first to write it: no rank
        # waits for another, and whichever is late finds the other's entry.
        key = f"detaug/first/{self._name}/{first}"
        store = group_store()
        earlier_rank = int(store.compare_set(key, "", str(self._rank)))
        if earlier_rank == self._rank or store.add(f"{key}/told", 1) > 1:
            return
        logger.warning(
            "ranks %d and %d of %d read the same batches of the loader %r: a training needs "
            "shard=True, or a DistributedSampler, for each rank to get its share. If all ranks are "
            "meant to see all data, ignore this",
            *sorted((earlier_rank, self._rank)),
            self._world_size,
            self._name,
        )


def group_store() -> Any:
    """Return the process group's store; torch has no public name for it."""
    return torch.distributed.distributed_c10d._get_default_store()
