"""How long epochs are, as far as that is known before they end."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from detaug.engine.order.schedule import Schedule
from detaug.pipeline.plan import Plan
from detaug.sources import Source


@dataclass(frozen=True)
class EpochLengths:
    """The length of an augmenter's epochs, and the schedule that follows from it; fields as the augmenter has them."""

    source: Source
    batches_per_epoch: int | None
    num_streams: int
    rank: int
    world_size: int
    tail: str

    @property
    def total(self) -> int | None:
        """An epoch's batches over all ranks, where the user or the loader says how many."""
        limits = (self.batches_per_epoch, self.source.num_steps)
        return min((number for number in limits if number is not None), default=None)

    def known_steps(self, limit: int | None = None) -> int | None:
        """An epoch's steps over all ranks, where they are known; `limit` is one that the caller knows of."""
        # Where copies go on from epoch to epoch, the steps behind an epoch's last are the next one's.
        follows = self.batches_per_epoch if self.source.turns_per_epoch(0, 1) is not None else None
        return min((number for number in (self.source.num_steps, follows, limit) if number is not None), default=None)

    def schedule(self, num_workers: int, num_cached: int, max_skips: int | None) -> Schedule:
        """A schedule at the start of epoch 0; `num_workers`: batches that are made at a time, 0 in the calling process."""
        source, limit = self.source, self.batches_per_epoch
        wraps_at = self.total if self.tail == "pad" else None
        plan = Plan(self.num_streams, self.rank, self.world_size, self.known_steps(), self.tail, wraps_at)
        # Ranks that have streams of their own would read for all others, only to see what batches_per_epoch tells them.
        told = limit is not None and gcd(self.num_streams, self.world_size) > 1
        known = told or source.endless or source.stateless or source.num_steps is not None
        probing = not known and self.tail == "drop"
        window = max(1, num_workers + num_cached) if num_workers else 1
        return Schedule(plan, window, max(1, num_workers), source.stateless, limit, probing, max_skips)
