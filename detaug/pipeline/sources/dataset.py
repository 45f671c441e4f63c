"""Map-style torch Datasets: a shuffled order per epoch, and a batch from any part of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from detaug.pipeline.plan import num_batches_of
from detaug.pipeline.sources.argument_hints import (
    batch_size_of,
    flag,
    length_of,
    refuse_as_dataset,
    refuse_orders,
)
from detaug.pipeline.sources.base import Source, worker_info
from detaug.pipeline.sources.collation import collate_name, collated, no_end
from detaug.pipeline.sources.orders import AsStored, Order, Sampled, Shuffled
from detaug.seeding.current import Current, making


class DatasetSource(Source):
    """A source of batches of ``dataset[i]`` in the epoch's order.

    The arguments are those of `detaug.DeterministicAugmenter.from_dataset`.

    Raises:
        TypeError: the data set has no length or no items; or arguments exclude each other.
        ValueError: the data set is empty, or smaller than one batch with drop_last.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = None,
        shuffle: bool | None = None,
        drop_last: bool = False,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        *,
        sampler: Any = None,
        batch_sampler: Any = None,
        worker_init_fn: Callable[[int], Any] | None = None,
        fetches_one_by_one: bool = False,
    ) -> None:
        refuse_as_dataset(dataset)
        orders = {"shuffle": shuffle, "sampler": sampler, "batch_sampler": batch_sampler}
        refuse_orders(orders, iterable=False)
        if batch_sampler is not None and (batch_size is not None or drop_last):
            raise TypeError(
                "batch_sampler gives whole batches: leave out batch_size and drop_last, which have "
                "no effect"
            )
        super().__init__(dataset, stateless=True)
        self.length = length_of(dataset)
        if self.length == 0:
            raise ValueError(f"the data set ({type(dataset).__name__}) is empty")
        self.order: Order
        if batch_sampler is not None:
            self.order = Sampled(batch_sampler, "batch_sampler", gives_batches=True)
        elif sampler is not None:
            self.order = Sampled(sampler, "sampler")
        elif shuffle is None or flag("shuffle", shuffle):
            self.order = Shuffled(self.length)
        else:
            self.order = AsStored(self.length)
        self.shuffle = isinstance(self.order, Shuffled)
        self.batch_size = 1
        if not self.order.gives_batches:
            self.batch_size = batch_size_of(batch_size)
        self.drop_last = flag("drop_last", drop_last)
        self.collate_fn = collate_fn
        self.worker_init_fn = worker_init_fn
        #: ``__getitems__`` is not for entries that are no indices of single samples.
        self._fetches_one_by_one = fetches_one_by_one
        #: Called with each sample before it is fetched.
        self.before_sample: Callable[[Current], None] | None = None
        num_samples = self.order.length
        self.num_steps: int = num_batches_of(num_samples, self.batch_size, self.drop_last)
        if self.num_steps == 0:
            subject = "data set has" if num_samples == self.length else "sampler gives"
            raise ValueError(
                f"the {subject} {num_samples} samples, which makes no batch of {self.batch_size}: "
                "pass a smaller batch_size, or drop_last=False"
            )

    def declared(self) -> list[str]:
        return [
            f"dataset length = {self.length}",
            f"batch_size = {self.batch_size}",
            f"shuffle = {self.shuffle}",
            f"drop_last = {self.drop_last}",
            f"collate_fn = {collate_name(self.collate_fn)}",
            *self.order.declared(),
        ]

    def declared_parts(self) -> dict[str, Any]:
        return self.order.parts()

    def originals(self) -> dict[str, Any]:
        return self.order.originals()

    def prepare(self, batch: Current) -> None:
        # Before the generators are seeded for the batch: a sampler may draw from any of them, but
        # only for this process's first batch of an epoch.
        self.indices(batch)

    def begin_process(self, number: int, total: int) -> None:
        """Prepare a copy for the batches of process `number` of `total`; called once."""
        if self.worker_init_fn is not None:
            with worker_info(number, total, torch.initial_seed(), self.loader):
                self.worker_init_fn(number)

    def make(self, batch: Current) -> Any:
        indices = self.indices(batch)
        if not indices:
            raise StopIteration
        try:
            return collated(self._samples(batch, indices), self.collate_fn)
        except StopIteration as error:
            raise no_end(f"{self.class_name}, asked for the items {indices},") from error

    def _samples(self, batch: Current, indices: list[int]) -> list[Any]:
        # One call for all samples, as torch makes it: such a data set has one stream of numbers for
        # the batch, and none for each sample.
        fetch_many = getattr(self.loader, "__getitems__", None)
        if callable(fetch_many) and not self._fetches_one_by_one:
            return list(fetch_many(indices))
        samples = []
        for number, index in enumerate(indices):
            sample = batch.of_sample(number)
            if self.before_sample is not None:
                self.before_sample(sample)
            with making(sample):
                samples.append(self.fetch(index))
        return samples

    def fetch(self, index: int) -> Any:
        """Return one item. Errors name the index that they find in this call's frame."""
        return self.loader[index]

    def indices(self, batch: Current) -> list[int]:
        """Return the indices of the samples that make this batch."""
        if batch.step >= self.num_steps:
            return []
        first = batch.step * self.batch_size
        # Cut at the epoch's end, where the last batch may be smaller.
        last = min(first + self.batch_size, self.order.length)
        entries = self.order.entries(batch.entropy, batch.epoch, first, last)
        if self.order.gives_batches:
            return list(entries[0])
        return entries
