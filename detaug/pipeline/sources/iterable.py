"""Sources for any other iterator, iterable, or callable that makes one.

Whether such a loader ends is not guessed from its code. One that does not say has one stream, and
its copies are stepped through its passes; see `Source` for what its epochs are.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np

from detaug.pipeline.plan import num_batches_of
from detaug.pipeline.sources.argument_hints import length_of
from detaug.pipeline.sources.base import (
    DEFAULT_NUM_STREAMS,
    Source,
    call_if_present,
    is_batchgenerators,
    refuse_stateless,
    worker_info,
)
from detaug.pipeline.sources.code import raises
from detaug.pipeline.sources.collation import collate_name, collated
from detaug.seeding.current import Current

#: batchgenerators' DataLoaderBase writes "no limit" as this number of batches.
_UNLIMITED = 1e100


class IteratorSource(Source):
    """A source for an object with ``__next__``, of batchgenerators' or the user's own."""

    def __init__(self, loader: Any, stateless: bool | None) -> None:
        super().__init__(loader, bool(stateless))
        self.endless = says_that_it_has_no_end(loader)
        self.restarts = self.endless
        self.pass_per_epoch = (
            is_batchgenerators(loader, "DataLoaderBase")
            and not self.endless
            and not self.restarts_every_epoch
        )
        if self.endless and not self.streams_share_data:
            self.default_num_streams = DEFAULT_NUM_STREAMS
            self.may_end = not self.stateless and raises(type(loader), "StopIteration")

    def next_pass(self) -> None:
        if hasattr(self.loader, "__iter__"):
            # As a `for` loop calls it: many iterators then go back to their start.
            iter(self.loader)

    def make(self, batch: Current) -> Any:
        if not self.stateless:
            return next(self.loader)
        call_if_present(self.loader, "set_thread_id", batch.stream)
        try:
            return next(self.loader)
        except StopIteration as error:
            # It would be treated as the epoch's end: the epoch's other batches would be lost.
            raise RuntimeError(
                f"{self.class_name} raised StopIteration, but it counts as stateless: any of its "
                "batches can be made at any time, so it has no end. Was it a next(...) without a "
                "match? A loader that ends must be declared stateless=False; an epoch's length is "
                "batches_per_epoch=..."
            ) from error


class IterableSource(Source):
    """A source for an object with ``__iter__`` alone: every pass is a new iterator."""

    def __init__(self, loader: Any, stateless: bool | None) -> None:
        refuse_stateless(loader, stateless)
        super().__init__(loader)
        self._iterator: Iterator[Any] | None = None
        try:
            length = length_of(loader)
        except (TypeError, NotImplementedError):
            length = None
        # A loader with a length declares that it ends.
        self.pass_per_epoch = length is not None and not self.restarts_every_epoch
        if self.default_num_streams == 1:
            self.length_hint = length
        # Any other length is the loader's claim, and its passes may have other lengths.
        if isinstance(loader, (list, tuple, range)):
            self.num_steps = length

    def next_pass(self) -> None:
        self._iterator = None

    def make(self, batch: Current) -> Any:
        if self._iterator is None:
            # Not in begin(): whatever the iterator draws when it starts has to come from the first
            # batch's seed.
            self._iterator = self._new_pass()
        return next(self._iterator)

    def _new_pass(self) -> Iterator[Any]:
        return iter(self.loader)


class FactorySource(IterableSource):
    """A source for a callable that makes an iterator: every copy calls it once per pass."""

    restarts = True

    def _new_pass(self) -> Iterator[Any]:
        return iter(self.loader())


class TorchIterable(IterableSource):
    """A source for a torch IterableDataset, to which each stream looks like a DataLoader's worker.

    `get_worker_info` says which worker, so that the data set can split its items among them. It
    gives samples, or batches if there is no `batch_size`. With samples, every epoch starts from a
    pristine copy, as it does with a DataLoader; with `batches_per_epoch` epochs continue.
    """

    def __init__(
        self,
        dataset: Any,
        stateless: bool | None = None,
        batch_size: int | None = None,
        drop_last: bool = False,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        worker_init_fn: Callable[[int], Any] | None = None,
    ) -> None:
        super().__init__(dataset, stateless)
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.collate_fn = collate_fn
        self.worker_init_fn = worker_init_fn
        self.restarts = batch_size is not None
        num_samples = self.length_hint
        if batch_size is not None and num_samples is not None:
            self.length_hint = num_batches_of(num_samples, batch_size, drop_last)
        #: (stream, number of streams, seed), as `worker_info` has them.
        self._worker: tuple[int, int, int] | None = None

    def declared(self) -> list[str]:
        if self.batch_size is None:
            return []
        return [
            f"batch_size = {self.batch_size}",
            f"drop_last = {self.drop_last}",
            f"collate_fn = {collate_name(self.collate_fn)}",
        ]

    def begin(
        self, stream: int, num_streams: int, epoch: int, epoch_child: np.random.SeedSequence
    ) -> None:
        super().begin(stream, num_streams, epoch, epoch_child)
        # The only stream gives all batches as they are: the data set needs no worker's number.
        if self.batch_size is None and num_streams == 1:
            return
        # A child of the epoch's by the stream: each worker of a DataLoader has a seed of its own.
        spawn_key = (*epoch_child.spawn_key, stream)
        child = np.random.SeedSequence(epoch_child.entropy, spawn_key=spawn_key)
        (word,) = child.generate_state(1, np.uint64)
        # 63 bits: torch's seeds are signed.
        seed = int(word) >> 1
        self._worker = (stream, num_streams, seed)
        if self.worker_init_fn is not None:
            with worker_info(*self._worker, self.loader):
                self.worker_init_fn(stream)

    def make(self, batch: Current) -> Any:
        if self._worker is None:
            return super().make(batch)
        with worker_info(*self._worker, self.loader):
            if self.batch_size is None:
                return super().make(batch)
            # The end of a pass in the middle of a batch: what there is makes the last batch.
            samples: list[Any] = []
            with suppress(StopIteration):
                while len(samples) < self.batch_size:
                    samples.append(super().make(batch))
        if not samples or (self.drop_last and len(samples) < self.batch_size):
            raise StopIteration
        return collated(samples, self.collate_fn)


def has_one_pass(loader: Any) -> bool:
    """Return whether it is an iterator of Python's own kinds.

    These are generators, open files, `csv.reader`, `map` and others.
    """
    step = getattr(type(loader), "__next__", None)
    return inspect.isgenerator(loader) or isinstance(step, types.WrapperDescriptorType)


def says_that_it_has_no_end(loader: Any) -> bool:
    """Return whether an iterator declares itself one of batchgenerators' endless ones.

    A `DataLoaderBase` has no end unless it has ``num_batches``. A `SlimDataLoaderBase` is endless
    unless its copies split its data, for which it needs ``number_of_threads_in_multithreaded``
    (so batchgenerators documents it), or it has a ``__next__`` of its own.
    """
    if is_batchgenerators(loader, "DataLoaderBase"):
        return bool(loader._num_batches >= _UNLIMITED)
    if not is_batchgenerators(loader, "SlimDataLoaderBase"):
        return False
    from batchgenerators.dataloading.data_loader import SlimDataLoaderBase

    return (
        type(loader).__next__ is SlimDataLoaderBase.__next__
        and loader.number_of_threads_in_multithreaded is None
    )
