"""Sources of raw batches, and the choice of the one that fits a user's object.

A loader counts as stateless if the user says so, or
`detaug.pipeline.sources.batchgenerators.draws_every_batch_anew` does. A source that is not
stateless is stepped forward in order, a copy for each stream (`detaug.pipeline.streams`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch.utils.data import IterableDataset

from detaug.pipeline.sources.argument_hints import batch_size_of, refuse_as_loader, refuse_orders
from detaug.pipeline.sources.base import Source, is_batchgenerators
from detaug.pipeline.sources.dataset import DatasetSource
from detaug.pipeline.sources.iterable import (
    FactorySource,
    IterableSource,
    IteratorSource,
    TorchIterable,
    has_one_pass,
)
from detaug.seeding.current import Current
from detaug.seeding.generators import preserved_global_rngs, reseed_global_rngs
from detaug.seeding.tree import SeedTree

__all__ = [
    "DatasetSource",
    "LoaderFactory",
    "SampleBatches",
    "Source",
    "resolve_source",
]

#: The attributes of a source that follow from its loader alone.
_FACTS = (
    "stateless",
    "pass_per_epoch",
    "restarts",
    "endless",
    "may_end",
    "streams_share_data",
    "default_num_streams",
    "num_steps",
    "length_hint",
    "restarts_every_epoch",
    "keeps_states",
    "class_name",
)


def resolve_source(
    loader: Any, stateless: bool | None = None, batches_per_epoch: int | None = None
) -> Source:
    """Return the source for a loader, an iterator, an iterable, or a callable that makes one.

    Args:
        loader: the user's object, a `Source`, or `SampleBatches`.
        stateless: the user's declaration; None: stateless only where that is known.
        batches_per_epoch: an epoch's batches over all ranks; None: until the loader ends.

    Raises:
        TypeError: the object is a generator or a map-style data set, or gives no batches at all.
        ValueError: stateless=True for an object that holds its position.
    """
    if isinstance(loader, SampleBatches):
        source = loader.source()
    elif isinstance(loader, Source):
        source = loader
    else:
        source = _source_of(loader, stateless)
    source.batches_per_epoch = batches_per_epoch
    return source


@dataclass(frozen=True)
class SampleBatches:
    """A map-style or iterable data set, and the arguments that say how it becomes batches.

    Attributes:
        options: further arguments of `DatasetSource` or `TorchIterable`.
    """

    dataset: Any
    batch_size: int | None
    shuffle: bool | None
    options: Mapping[str, Any]

    def source(self) -> Source:
        """Return the source that makes batches of the data set.

        Raises:
            TypeError: an argument sets the order of an IterableDataset, or is invalid for the
                source.
        """
        options = dict(self.options)
        if not isinstance(self.dataset, IterableDataset):
            return DatasetSource(self.dataset, self.batch_size, self.shuffle, **options)
        orders = {name: options.pop(name) for name in ("sampler", "batch_sampler")}
        refuse_orders({"shuffle": self.shuffle, **orders}, iterable=True)
        return TorchIterable(self.dataset, None, batch_size_of(self.batch_size), **options)


def _source_of(loader: Any, stateless: bool | None) -> Source:
    refuse_as_loader(loader)
    if is_batchgenerators(loader, "DataLoader"):
        # Imported here, because batchgenerators is slow to import and few loaders need it.
        from detaug.pipeline.sources.batchgenerators import FiniteLoader, InfiniteLoader

        kind = InfiniteLoader if loader.infinite else FiniteLoader
        return kind(loader, stateless)
    # A class has the methods that its instances have, but is called to get a loader.
    if isinstance(loader, type) or not _gives_items(loader):
        return _from_callable(loader, stateless)
    # `__next__` is tested first, because iterators have `__iter__` as well.
    if hasattr(loader, "__next__"):
        return IteratorSource(loader, stateless)
    if isinstance(loader, IterableDataset):
        return TorchIterable(loader, stateless)
    return IterableSource(loader, stateless)


def _gives_items(loader: Any) -> bool:
    return hasattr(loader, "__next__") or hasattr(loader, "__iter__")


def _from_callable(make_loader: Any, stateless: bool | None) -> Source:
    if not callable(make_loader):
        raise TypeError(
            "data_loader must be a batchgenerators loader, an iterator, an iterable, or a callable "
            f"that makes one, got {make_loader!r} of type {type(make_loader).__name__}"
        )
    with preserved_global_rngs():
        # The pipeline's description has to be the same in every run.
        reseed_global_rngs(SeedTree(0).sequence())
        loader = make_loader()
    # Of such an iterator every pass needs a new one; any other object is copied or kept.
    if has_one_pass(loader):
        return FactorySource(make_loader, stateless)
    return LoaderFactory(make_loader, stateless, loader)


class LoaderFactory(Source):
    """A callable that makes a loader.

    Each process that makes batches calls it for itself
    (`detaug.pipeline.copying.pipeline_snapshot`), so that files, sockets and threads are opened in
    the process that uses them.

    Args:
        make_loader: the callable.
        stateless: the user's declaration.
        inspected_loader: a loader that it has made, to be described, which is sent to no other
            process.
    """

    def __init__(
        self, make_loader: Callable[[], Any], stateless: bool | None, inspected_loader: Any
    ) -> None:
        super().__init__(make_loader)
        self._declared = stateless
        self.inspected_loader = inspected_loader
        source = self._source_of(inspected_loader)
        for name in _FACTS:
            setattr(self, name, getattr(source, name))

    def _source_of(self, loader: Any) -> Source:
        if isinstance(loader, type) or not _gives_items(loader):
            raise TypeError(f"calling {self.loader!r} was to make a loader, but gave {loader!r}")
        return _source_of(loader, self._declared)

    def in_this_process(self) -> Source:
        source = self._source_of(self.loader())
        source.batches_per_epoch = self.batches_per_epoch
        return source

    def make(self, batch: Current) -> Any:
        raise NotImplementedError("in_this_process() returns the source that makes batches")

    def __getstate__(self) -> dict[str, Any]:
        # The loader that was made to be looked at may have files open; each process makes its own.
        return {**vars(self), "inspected_loader": None}
