"""The arguments of a `detaug.DataLoader` as a value, and the augmenter that follows from them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import (
    DistributedSampler,
    IterableDataset,
    SequentialSampler,
    default_convert,
)

from detaug.augmenter.augmenter import DeterministicAugmenter
from detaug.augmenter.batch_keys import Batches, EpochSampler
from detaug.engine.executor import Executor
from detaug.engine.local.coordinator import LocalProcesses
from detaug.pipeline.plan import StepPlan, num_batches_of
from detaug.pipeline.sources import Source
from detaug.pipeline.sources.argument_hints import length_of
from detaug.pipeline.sources.dataset import DatasetSource
from detaug.pipeline.sources.iterable import TorchIterable
from detaug.pipeline.sources.orders import length_of_sampler
from detaug.seeding.ranks import known_rank_and_world_size
from detaug.seeding.tree import Seed

SHUFFLED = "shuffled"
IN_ORDER = "in order"
SAMPLER = "sampler"
BATCH_SAMPLER = "batch_sampler"
ITERABLE = "iterable"

#: The seed tree's branch of a loader without a name, by its order.
_BRANCHES = {
    SHUFFLED: "shuffled",
    IN_ORDER: "ordered",
    SAMPLER: "sampled",
    BATCH_SAMPLER: "sampled",
    ITERABLE: "streamed",
}

#: Lightning's wrapper around a batch sampler for predict, which records the indices of samples.
_OBSERVER = "_IndexBatchSamplerWrapper"


@dataclass(frozen=True)
class Order:
    """The order in which samples are read, and the ranks that share them.

    Attributes:
        kind: SHUFFLED, IN_ORDER, SAMPLER, BATCH_SAMPLER or ITERABLE.
        indices: the user's sampler or batch sampler; None for the other kinds.
        batch_size: samples in a batch. None: each sample is a batch by itself, or a batch sampler
            sets the size.
        drop_last: leave out the last, smaller batch.
        distributed: a DistributedSampler whose ranks share the batches; None: not passed.
        observer: Lightning's wrapper around the batch sampler, which records the indices; None:
            not passed.
    """

    kind: str
    indices: Any
    batch_size: int | None
    drop_last: bool
    distributed: DistributedSampler[Any] | None = None
    observer: Any = None


def order_of(
    dataset: Any,
    batch_size: int | None,
    shuffle: bool | None,
    sampler: Any,
    batch_sampler: Any,
    drop_last: bool,
) -> Order:
    """Return the order that follows from a DataLoader's arguments, which torch has checked.

    Raises:
        ValueError: a sampler yields one rank's share in an order of its own.
    """
    if isinstance(dataset, IterableDataset):
        return Order(ITERABLE, None, batch_size, drop_last)
    # Unwrapped from the outside inwards: Lightning's wrapper, this package's batch sampler, a
    # DistributedSampler, the user's sampler.
    observer = None
    # By name, so that Lightning is not imported for it.
    if type(batch_sampler).__name__ == _OBSERVER:
        observer = batch_sampler
        batch_sampler = batch_sampler._batch_sampler
    if isinstance(batch_sampler, Batches):
        # The attribute of a loader that a library is copying.
        batch_size = batch_sampler.batch_size
        drop_last = batch_sampler.drop_last
        sampler = batch_sampler.sampler
        batch_sampler = batch_sampler.custom
    distributed = None
    if isinstance(sampler, DistributedSampler) and not isinstance(sampler, EpochSampler):
        distributed = sampler
        shuffle = sampler.shuffle
        sampler = _inner_sampler(sampler)
    if batch_sampler is not None:
        _refuse_share(batch_sampler)
        return Order(BATCH_SAMPLER, batch_sampler, None, False, distributed, observer)
    indices = None
    if isinstance(sampler, EpochSampler):
        original = sampler.stream.settings.order  # type: ignore[attr-defined]
        kind = original.kind
        indices = original.indices
    elif sampler is None or type(sampler) is SequentialSampler:
        kind = SHUFFLED if shuffle else IN_ORDER
    else:
        kind = SAMPLER
        indices = sampler
    return Order(kind, indices, batch_size, drop_last, distributed, observer)


def wraps_batches(batch_sampler: Any) -> bool:
    """Return whether a library's batch sampler wraps the one of a `detaug.DataLoader`."""
    is_observer = type(batch_sampler).__name__ == _OBSERVER
    return not is_observer and isinstance(getattr(batch_sampler, "batch_sampler", None), Batches)


def _inner_sampler(sampler: DistributedSampler[Any]) -> Any:
    """Return the sampler that a DistributedSampler divides among ranks; None: it has none.

    Raises:
        ValueError: the sampler has an order of its own.
    """
    if type(sampler).__iter__ is DistributedSampler.__iter__:
        return None
    # Lightning's DistributedSampler of a sampler: its data set is a wrapper around the sampler.
    inner = getattr(sampler.dataset, "_sampler", None)
    if type(sampler).__name__ == "DistributedSamplerWrapper" and inner is not None:
        return inner
    raise ValueError(
        f"{type(sampler).__name__} gives each rank a share of the samples in an order of its own, "
        "and ranks share whole batches here: pass the order of all samples as sampler=, with "
        "shard=True, or a plain DistributedSampler. (Lightning's predict on several devices has "
        "such a sampler: use one device, or Trainer(use_distributed_sampler=False))"
    )


def _refuse_share(batch_sampler: Any) -> None:
    """Raise a ValueError if a batch sampler yields the batches of one of several ranks."""
    sampler = getattr(batch_sampler, "sampler", None)
    if isinstance(sampler, DistributedSampler) and sampler.num_replicas > 1:
        raise ValueError(
            f"batch_sampler ({type(batch_sampler).__name__}) gives batches of one of "
            f"{sampler.num_replicas} ranks: pass its {type(sampler).__name__} as sampler=, with "
            "batch_size, or batches of all samples with shard=True"
        )


class SingleItem:
    """The collate function of a loader without batch size: converts each item by itself."""

    def __init__(self, function: Callable[[Any], Any] | None) -> None:
        self.function: Callable[[Any], Any] = default_convert if function is None else function
        # State dicts contain this name.
        self.__qualname__ = f"item by {getattr(self.function, '__qualname__', '')}"

    def __call__(self, samples: list[Any]) -> Any:
        (sample,) = samples
        return self.function(sample)


@dataclass(frozen=True)
class Settings:
    """The arguments of a `DataLoader`, which documents them.

    Attributes:
        dataset: the user's data set.
        order: follows from batch_size, shuffle, the samplers and drop_last.
    """

    dataset: Any
    order: Order
    num_workers: int
    collate_fn: Any
    pin_memory: bool
    timeout: float
    worker_init_fn: Any
    multiprocessing_context: Any
    generator: torch.Generator | None
    prefetch_factor: int | None
    seed: Any
    name: str | None
    epoch: int | None
    shard: bool
    num_streams: int | None
    transform: Any
    keep: Sequence[str]
    check: Any
    on_error: Any
    ledger: Any
    executor: Executor | None

    @property
    def is_iterable(self) -> bool:
        """True if the data set sets the order itself."""
        return self.order.kind == ITERABLE

    @property
    def has_single_items(self) -> bool:
        """True if each item is a batch by itself."""
        return self.order.batch_size is None and self.order.kind != BATCH_SAMPLER

    @property
    def shares(self) -> bool:
        """True if ranks share the batches."""
        return self.shard or self.order.distributed is not None

    @property
    def branch(self) -> str:
        """The branch of the seed tree: the name, or one that follows from the order."""
        return self.name or _BRANCHES[self.order.kind]

    @property
    def tail(self) -> str:
        """The use of a last round with fewer batches than ranks: "drop" or "pad"."""
        distributed = self.order.distributed
        if self.order.drop_last or (distributed is not None and distributed.drop_last):
            return "drop"
        return "pad"

    def num_batches(self) -> int:
        """Return the number of batches of an epoch, over all ranks.

        Raises:
            TypeError: the data set or sampler has no length.
        """
        order = self.order
        if order.kind == BATCH_SAMPLER:
            return length_of_sampler(order.indices, "batch_sampler")
        if order.kind == SAMPLER:
            num_samples = length_of_sampler(order.indices, "sampler")
        else:
            num_samples = length_of(self.dataset)
        if order.batch_size is None:
            return num_samples
        return num_batches_of(num_samples, order.batch_size, order.drop_last)

    def rank_and_world_size(self) -> tuple[int, int]:
        """Return this process's rank and the number of ranks that share the batches, if known yet.

        (0, 1) if ranks do not share them.
        """
        distributed = self.order.distributed
        if distributed is not None:
            return distributed.rank, distributed.num_replicas
        if self.shard:
            return known_rank_and_world_size()
        return 0, 1

    def share(self) -> int:
        """Return this rank's number of batches in a whole epoch.

        Raises:
            TypeError: the data set or sampler has no length.
        """
        rank, world_size = self.rank_and_world_size()
        return StepPlan(1, rank, world_size, tail=self.tail).share_of(self.num_batches())

    def source(self) -> Source:
        """Return the source of raw batches, made of the objects as they are now."""
        order = self.order
        batch_size = order.batch_size
        collate_fn = self.collate_fn
        if self.has_single_items:
            batch_size = 1
            collate_fn = SingleItem(self.collate_fn)
        if self.is_iterable:
            return TorchIterable(
                self.dataset, None, batch_size, order.drop_last, collate_fn, self.worker_init_fn
            )
        shuffle = None
        sampler = None
        batch_sampler = None
        if order.kind == SAMPLER:
            sampler = order.indices
        elif order.kind == BATCH_SAMPLER:
            batch_sampler = order.indices
        else:
            shuffle = order.kind == SHUFFLED
        return DatasetSource(
            self.dataset,
            batch_size,
            shuffle,
            order.drop_last,
            collate_fn,
            sampler=sampler,
            batch_sampler=batch_sampler,
            worker_init_fn=self.worker_init_fn,
            fetches_one_by_one=self.has_single_items,
        )

    def augmenter(
        self, source: Source, seed: Seed, rank: int, world_size: int
    ) -> DeterministicAugmenter:
        """Return the augmenter of one rank, with its pipeline settled."""
        executor = self.executor
        # Without workers there is no start method, and nothing that could stall.
        if executor is None and self.num_workers:
            executor = LocalProcesses(
                start_method=_start_method(self.multiprocessing_context),
                stall_timeout=self.timeout or None,
            )
        # Torch counts the batch that a worker is making as one of the prefetched ones.
        num_prefetched = 2 if self.prefetch_factor is None else self.prefetch_factor
        augmenter: DeterministicAugmenter = DeterministicAugmenter(
            source,
            self.transform,
            self.num_workers,
            num_cached=max(0, num_prefetched - 1) * self.num_workers,
            pin_memory=self.pin_memory,
            seed=seed,
            name=self.branch,
            num_streams=self.num_streams,
            rank=rank,
            world_size=world_size,
            # A single rank has no incomplete rounds: its ledger's header always says "drop".
            tail="drop" if world_size == 1 else self.tail,
            on_error=self.on_error,
            keep=self.keep,
            check=self.check,
            executor=executor,
            ledger=self.ledger,
        )
        augmenter.settle_as_constructed()
        return augmenter

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of a `DataLoader` with these settings."""
        order = self.order
        options = {
            name: getattr(self, name) for name in self.__dataclass_fields__ if name != "order"
        }
        if order.kind == BATCH_SAMPLER:
            options["batch_sampler"] = order.indices
            return options
        options["batch_size"] = order.batch_size
        options["drop_last"] = order.drop_last
        if order.distributed is not None:
            options["sampler"] = order.distributed
        elif order.kind == SAMPLER:
            options["sampler"] = order.indices
        else:
            options["shuffle"] = True if order.kind == SHUFFLED else None
        return options


def _start_method(context: Any) -> str | None:
    """Return the start method of a context of `multiprocessing`, or the method that was passed."""
    if context is None or isinstance(context, str):
        return context
    return str(context.get_start_method())
