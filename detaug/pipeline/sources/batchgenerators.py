"""Sources for batchgenerators' `DataLoader` and classes derived from it.

nnU-Net's loader and detaug's `PatchSource` are such classes.

Known to be stateless is ``DataLoader(infinite=True)``, which draws new indices for every batch. So
is every class derived from it that replaces none of `POSITION_METHODS`, as nnU-Net's
``nnUNetDataLoader``; one that does keeps a position, and is bound to streams unless the user
declares ``stateless=True``. Only the run-time check sees what a method *does*: declare
``stateless=False`` for a class that counts batches in ``generate_train_batch``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from batchgenerators.dataloading.data_loader import DataLoader

from detaug.pipeline.plan import num_batches_of
from detaug.pipeline.sources.base import DEFAULT_NUM_STREAMS, Source, refuse_stateless
from detaug.pipeline.sources.code import mentions
from detaug.pipeline.sources.iterable import IteratorSource
from detaug.seeding.current import Current

#: Methods with which a loader keeps its place in the data.
POSITION_METHODS = ("__next__", "__iter__", "reset", "state_dict", "load_state_dict")


class InfiniteLoader(IteratorSource):
    """A source for ``DataLoader(infinite=True)``.

    Every batch is drawn from the global RNG, so any copy can make any batch.
    """

    def __init__(self, loader: DataLoader, stateless: bool | None) -> None:
        draws_anew = draws_every_batch_anew(loader)
        super().__init__(loader, draws_anew if stateless is None else stateless)
        self.holds_transforms = transforms_in(loader)
        self.streams_share_data = False
        declared = int(loader.number_of_threads_in_multithreaded or 1)
        if declared > 1:
            self.default_num_streams = declared
        elif draws_anew:
            self.default_num_streams = DEFAULT_NUM_STREAMS
        else:
            # All copies of a loader that keeps its own position would give the same batches.
            self.default_num_streams = 1


class FiniteLoader(Source):
    """A source for ``DataLoader(infinite=False)``: its streams split one shuffled order.

    Every epoch starts from a pristine copy whose shuffle state is seeded from (`seed_for_shuffle`,
    the epoch's child), equally in all streams: any epoch can be entered without walking through the
    earlier ones.

    A subclass may have an order of its own, which it changes from pass to pass by itself. That
    shows in its first batch, for which it does not call ``get_indices``. Its epochs are its passes,
    as those of any other finite loader.
    """

    def __init__(self, loader: DataLoader, stateless: bool | None) -> None:
        refuse_stateless(loader, stateless)
        super().__init__(loader)
        self.restarts_every_epoch = True
        self.streams_share_data = True
        self.holds_transforms = transforms_in(loader)
        self.num_steps = _number_of_batches(loader)
        self.is_undecided = not hasattr(loader, "set_epoch")

    def begin(
        self, stream: int, num_streams: int, epoch: int, epoch_child: np.random.SeedSequence
    ) -> None:
        super().begin(stream, num_streams, epoch, epoch_child)
        # The user's own seed is added, not used alone: it would shuffle all epochs alike.
        words = epoch_child.generate_state(4, np.uint32)
        if self.loader.seed_for_shuffle is not None:
            seeds = np.asarray(self.loader.seed_for_shuffle, dtype=np.uint64)
            words = np.concatenate([words, np.atleast_1d(seeds).astype(np.uint32)])
        self.loader.rs = np.random.RandomState(words)
        self.loader.last_reached = False

    def make(self, batch: Current) -> Any:
        if not self.is_undecided:
            return next(self.loader)
        with _calls_recorded(self.loader, "get_indices") as calls:
            try:
                item = next(self.loader)
            finally:
                if calls:
                    self.is_undecided = False
        if self.is_undecided:
            self._follow_its_own_order()
        return item

    def learn_from(self, other: Source) -> None:
        if not self.is_undecided or other.is_undecided:
            return
        self.is_undecided = False
        if other.pass_per_epoch:
            self._follow_its_own_order()

    def _follow_its_own_order(self) -> None:
        self.is_undecided = False
        self.restarts_every_epoch = False
        self.pass_per_epoch = True

    def next_pass(self) -> None:
        # As a `for` loop calls it before every pass.
        iter(self.loader)


@contextmanager
def _calls_recorded(loader: DataLoader, method: str) -> Iterator[list[str]]:
    """Yield a list that gets the method's name whenever the loader calls it meanwhile."""
    calls: list[str] = []
    original = getattr(loader, method)
    # On the object, not its class: other loaders of the class are not concerned.
    attributes = vars(loader)
    had_its_own = method in attributes

    def note_and_call(*args: Any, **kwargs: Any) -> Any:
        calls.append(method)
        return original(*args, **kwargs)

    attributes[method] = note_and_call
    try:
        yield calls
    finally:
        if had_its_own:
            attributes[method] = original
        else:
            del attributes[method]


def transforms_in(loader: DataLoader) -> tuple[str, ...]:
    """Return the attributes in which such a loader keeps its own transforms.

    nnU-Net's applies ``transforms`` to each sample.
    """
    attributes = vars(loader)
    return tuple(
        name for name in ("transforms", "transform") if _is_transform(attributes.get(name))
    )


def _is_transform(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return bool(value) and all(callable(item) for item in value)
    return callable(value) and not isinstance(value, type)


def _number_of_batches(loader: DataLoader) -> int | None:
    """Return the batches per pass over all streams; None if the order is not batchgenerators'."""
    kind = type(loader)
    if kind.get_indices is not DataLoader.get_indices or kind.__next__ is not DataLoader.__next__:
        return None
    if not mentions(kind, "get_indices"):
        # It has an order, and a length, of its own.
        return None
    try:
        num_items = len(loader.indices)
        batch_size = int(loader.batch_size)
    except (TypeError, ValueError):
        return None
    if batch_size < 1:
        return None
    return num_batches_of(num_items, batch_size, drop_last=not loader.return_incomplete)


def draws_every_batch_anew(loader: DataLoader) -> bool:
    """Return whether an infinite `DataLoader` is known to be stateless.

    It replaces none of `POSITION_METHODS`, neither in its class nor on the object.
    """
    kind = type(loader)
    for name in POSITION_METHODS:
        if getattr(kind, name, None) is not getattr(DataLoader, name, None):
            return False
        if name in vars(loader):
            return False
    return True
