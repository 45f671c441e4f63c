"""Map-style torch Datasets: a shuffled order per epoch, and a batch from any part of it."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import numpy as np

from detaug.seeding.current import Current, making
from detaug.seeding.tree import positive_int
from detaug.sources.base import Source
from detaug.sources.misuse import flag, refuse_as_dataset


class DatasetSource(Source):
    """Batches of ``dataset[i]`` in the epoch's order.

    Args:
        dataset: has ``__len__`` and ``__getitem__`` (or ``__getitems__``, which is preferred, as torch does).
        batch_size: samples per batch.
        shuffle: a new order for every epoch, from the epoch's SeedSequence child; else the data set's own order.
        drop_last: leave out the last batch of an epoch if it is smaller.
        collate_fn: list of samples → batch; None: torch's default_collate.

    Raises:
        TypeError: the data set has no length or no items.
        ValueError: the data set is empty, or smaller than one batch with drop_last.
    """

    stateless = True

    def __init__(
        self,
        dataset: Any,
        batch_size: int,
        shuffle: bool = True,
        drop_last: bool = False,
        collate_fn: Callable[[list[Any]], Any] | None = None,
    ) -> None:
        refuse_as_dataset(dataset)
        self.loader = dataset
        self.length = len(dataset)
        self.batch_size = positive_int("batch_size", batch_size)
        self.shuffle = flag("shuffle", shuffle)
        self.drop_last = flag("drop_last", drop_last)
        self.collate_fn = collate_fn
        #: Called with each sample before it is fetched.
        self.before_sample: Callable[[Current], None] | None = None
        #: No transform comes after it, so that a batch may be made in the memory that it travels in.
        self.is_last = False
        self.num_steps = self.length // self.batch_size if self.drop_last else -(-self.length // self.batch_size)
        if self.num_steps == 0:
            raise ValueError(
                f"the data set has {self.length} samples, which makes no batch of {self.batch_size} with drop_last=True: pass "
                f"batch_size={self.length} or less, or drop_last=False"
                if self.length
                else f"the data set ({type(dataset).__name__}) is empty"
            )

    def declared(self) -> list[str]:
        """What a state dict is compared by, a line each."""
        collate = "default_collate" if self.collate_fn is None else getattr(self.collate_fn, "__qualname__", "")
        return [
            f"dataset length = {self.length}",
            f"batch_size = {self.batch_size}",
            f"shuffle = {self.shuffle}",
            f"drop_last = {self.drop_last}",
            f"collate_fn = {collate}",
        ]

    def make(self, batch: Current) -> Any:
        indices = self.indices(batch)
        if not indices:
            raise StopIteration
        samples = self._samples(batch, indices)
        collate = self.collate_fn or _default_collate(self.is_last)
        try:
            return collate(samples)
        except StopIteration as error:
            raise _no_end(f"collate_fn ({getattr(collate, '__qualname__', collate)}) of samples {indices}") from error

    def _samples(self, batch: Current, indices: list[int]) -> list[Any]:
        fetch_many = getattr(self.loader, "__getitems__", None)
        if callable(fetch_many):
            try:
                return list(fetch_many(indices))
            except StopIteration as error:
                raise _no_end(f"{type(self.loader).__name__}.__getitems__({indices})") from error
        samples = []
        for number, index in enumerate(indices):
            sample = batch.of_sample(number)
            if self.before_sample is not None:
                self.before_sample(sample)
            with making(sample):
                samples.append(self.fetch(index))
        return samples

    def fetch(self, index: int) -> Any:
        """One item. (Errors name the index that they find in this call's frame.)"""
        try:
            return self.loader[index]
        except StopIteration as error:
            raise _no_end(f"{type(self.loader).__name__}[{index}]") from error

    def indices(self, batch: Current) -> list[int]:
        """Which samples make this batch."""
        first = batch.step * self.batch_size
        if self.num_steps is not None and batch.step >= self.num_steps:
            return []
        last = min(first + self.batch_size, self.length)
        if not self.shuffle:
            return list(range(first, last))
        order = epoch_order(self.length, batch.entropy, batch.epoch)
        return [int(i) for i in order[first:last]]


def _default_collate(in_place: bool) -> Callable[[list[Any]], Any]:
    from detaug.sources.collation import default_collate

    return partial(default_collate, in_place=in_place)


def _no_end(what: str) -> RuntimeError:
    """Replaces a StopIteration, which would look like the epoch's end: the rest would be lost silently."""
    return RuntimeError(
        f"{what} raised StopIteration. Was it a next(...) without a match? A data set ends where its length says"
    )


@lru_cache(maxsize=4)
def epoch_order(length: int, entropy: tuple[int, ...], epoch: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The permutation of 0 ... length-1 of that epoch, int64.

    Sorted by raw 64-bit draws of the epoch's child rather than by ``Generator.permutation``, whose stream NumPy may
    change between versions (NEP 19); equal draws keep their order.
    """
    child = np.random.SeedSequence(entropy, spawn_key=(epoch,))
    keys = np.random.PCG64DXSM(child).random_raw(length)
    return np.argsort(keys, kind="stable").astype(np.int64)
