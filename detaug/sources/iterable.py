"""Any other iterator, iterable, or callable that makes one."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from batchgenerators.dataloading.data_loader import DataLoaderBase

from detaug.context import Current
from detaug.sources.base import DEFAULT_NUM_STREAMS, Source, spread_over_streams, tell

_UNLIMITED = 1e100  # batchgenerators' DataLoaderBase writes "no limit" as this number of batches


class IteratorSource(Source):
    """An object with ``__next__``: batchgenerators' SlimDataLoaderBase and DataLoaderBase, or the user's own."""

    def __init__(self, loader: Any, stateless: bool | None) -> None:
        self.loader = loader
        self.stateless = bool(stateless)
        self.endless = looks_endless(loader)
        self.pass_per_epoch = not self.endless and not hasattr(loader, "set_epoch")
        declared = getattr(loader, "number_of_threads_in_multithreaded", None)
        if declared is not None and declared > 1:
            self.default_num_streams = int(declared)
        else:
            self.default_num_streams = DEFAULT_NUM_STREAMS if self.endless else 1

    def begin(self, stream: int, num_streams: int, epoch: int, epoch_child: np.random.SeedSequence) -> None:
        spread_over_streams(self.loader, num_streams)
        tell(self.loader, "set_thread_id", stream)
        if hasattr(self.loader, "was_initialized"):
            self.loader.was_initialized = False  # as batchgenerators' augmenters do before they start

    def make(self, batch: Current) -> Any:
        if self.stateless:
            tell(self.loader, "set_thread_id", batch.stream)
        return next(self.loader)


class IterableSource(Source):
    """An object with ``__iter__`` alone: every pass is a new iterator over the same copy."""

    pass_per_epoch = True

    def __init__(self, loader: Any, stateless: bool | None) -> None:
        _refuse_stateless(loader, stateless)
        self.loader = loader
        self.pass_per_epoch = not hasattr(loader, "set_epoch")
        declared = getattr(loader, "number_of_threads_in_multithreaded", None)
        self.default_num_streams = int(declared) if declared is not None and declared > 1 else 1
        self._iterator: Iterator[Any] | None = None
        if self.default_num_streams == 1:
            try:
                self.length_hint = len(loader)
            except (TypeError, NotImplementedError):
                self.length_hint = None
        if isinstance(loader, (list, tuple, range)):
            self.num_steps = self.length_hint

    def begin(self, stream: int, num_streams: int, epoch: int, epoch_child: np.random.SeedSequence) -> None:
        spread_over_streams(self.loader, num_streams)
        tell(self.loader, "set_thread_id", stream)

    def next_pass(self) -> None:
        self._iterator = None

    def make(self, batch: Current) -> Any:
        if self._iterator is None:
            # Not in begin(): whatever the iterator draws when it starts is to come from the first batch's seed.
            self._iterator = iter(self.loader)
        return next(self._iterator)


class FactorySource(Source):
    """A callable that makes an iterator that cannot be copied (a generator): every copy calls it for itself."""

    pass_per_epoch = False

    def __init__(self, make_loader: Callable[[], Any], stateless: bool | None) -> None:
        _refuse_stateless(make_loader, stateless)
        self.loader = make_loader
        self._iterator: Iterator[Any] | None = None

    def begin(self, stream: int, num_streams: int, epoch: int, epoch_child: np.random.SeedSequence) -> None:
        self._iterator = None

    def make(self, batch: Current) -> Any:
        if self._iterator is None:
            self._iterator = iter(self.loader())
        return next(self._iterator)


def _refuse_stateless(loader: Any, stateless: bool | None) -> None:
    if stateless:
        raise ValueError(
            f"{loader!r} is walked through by an iterator, which holds its position: it cannot be stateless=True"
        )


def looks_endless(loader: Any) -> bool:
    """Whether nothing about an iterator says that it ends: no length, and no ``StopIteration`` in its class's code.

    An iterator that ends is given one stream unless it declares more, since copies of it would repeat each other.
    """
    if isinstance(loader, DataLoaderBase):
        return bool(loader._num_batches >= _UNLIMITED)
    if hasattr(type(loader), "__len__") or operator.length_hint(loader, -1) >= 0:
        return False
    if type(loader).__module__ == "builtins" or type(loader).__module__ == "itertools":
        return False
    for owner in type(loader).__mro__:
        for member in vars(owner).values():
            code = getattr(getattr(member, "__func__", member), "__code__", None)
            if code is not None and "StopIteration" in code.co_names:
                return False
    return True
