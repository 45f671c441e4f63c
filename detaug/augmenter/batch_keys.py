"""Samplers, data sets and collation that other libraries read off a loader to make another one.

Such a library shards, skips and resumes by the entries that the batch sampler yields. Here an entry
is a list of `SampleKey`: integers that also name their batch, and the sample within it.

    Batches, EpochSampler   yield lists of keys, of all ranks, in the order of the epoch
              │
    DatasetView             __getitems__(keys): the batch that holds them, or parts of several
              │
    Collate                 returns such a batch unchanged; refuses samples that were fetched
                            in any other order

So a rebuilt loader has the batches of the loader itself, byte for byte, in whatever order, share or
part they are requested.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

from torch.utils.data import (
    BatchSampler,
    Dataset,
    DistributedSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    default_collate,
    get_worker_info,
)

from detaug.augmenter.passes import Epochs


class SampleKey(int):
    """A sample's index in its data set, with its batch and its index there.

    Attributes:
        epoch, step: the batch.
        index_in_batch: 0 ... size - 1.
        size: number of samples in the batch.
    """

    epoch: int
    step: int
    index_in_batch: int
    size: int

    def __new__(
        cls, index: int, epoch: int = 0, step: int = 0, index_in_batch: int = 0, size: int = 1
    ) -> SampleKey:
        # An integer, because libraries use what samplers yield as indices.
        key = super().__new__(cls, index)
        key.epoch = epoch
        key.step = step
        key.index_in_batch = index_in_batch
        key.size = size
        return key

    def __getnewargs__(self) -> tuple[int, ...]:  # type: ignore[override]
        return int(self), self.epoch, self.step, self.index_in_batch, self.size


class KeyedStream(Protocol):
    """The part of a loader that samplers and views read.

    Attributes:
        epochs: knows which epoch comes next.
        rank_and_world_size: of this process; (0, 1) if the loader does not share batches among
            ranks.
        has_single_items: the loader has no batch size, so that a sampler's entry is a whole batch.
        refuses_samples: samples that the loader did not fetch itself are an error.
    """

    @property
    def epochs(self) -> Epochs: ...

    @property
    def rank_and_world_size(self) -> tuple[int, int]: ...

    @property
    def has_single_items(self) -> bool: ...

    @property
    def refuses_samples(self) -> bool: ...

    def num_batches(self) -> int:
        """Return the number of batches of an epoch, over all ranks."""

    def indices(self, epoch: int, step: int) -> list[Any]:
        """Return the indices of a batch's samples."""

    def batch_of(self, keys: Sequence[SampleKey]) -> Any:
        """Return the batch with these samples."""

    def keyed_epoch(self) -> int:
        """Return the epoch that is being read by keys, or that comes next."""


def keys_of_epoch(stream: KeyedStream) -> Iterator[list[SampleKey]]:
    """Yield the keys of the upcoming epoch, one list for each batch.

    The epoch is chosen when the first list is requested. It has begun when one of its batches is
    read.

    Raises:
        RuntimeError: a state was loaded into the loader, to continue within an epoch.
    """
    if stream.epochs.rest is not None:
        raise RuntimeError(
            "a state was loaded into this loader, but another loader made from it begins at the "
            "epoch's start and skips batches itself: load the state into only one of the two"
        )
    # Asked once: reading the first batch makes another epoch the upcoming one.
    epoch = stream.epochs.upcoming()
    for step in range(stream.num_batches()):
        yield keys_of_batch(stream, epoch, step)


def keys_of_batch(stream: KeyedStream, epoch: int, step: int) -> list[SampleKey]:
    """Return the keys of one batch."""
    indices = stream.indices(epoch, step)
    size = len(indices)
    keys = []
    for index_in_batch, entry in enumerate(indices):
        # A sampler may yield names instead of indices. A key is an integer, so it has the index in
        # the batch then.
        index = entry if isinstance(entry, int) else index_in_batch
        keys.append(SampleKey(index, epoch, step, index_in_batch, size))
    return keys


class EpochSampler(Sampler[SampleKey]):
    """The keys of an epoch's samples, over all ranks, in order."""

    def __init__(self, stream: KeyedStream, data_source: Any) -> None:
        self.stream = stream
        self.data_source = data_source

    def batches(self) -> Iterator[list[SampleKey]]:
        """Return an iterator over the keys of the upcoming epoch, one list for each batch."""
        return keys_of_epoch(self.stream)

    def __iter__(self) -> Iterator[SampleKey]:
        for keys in self.batches():
            yield from keys

    def __len__(self) -> int:
        # The number of samples, as for torch's samplers; `Batches` counts batches.
        return len(self.data_source)

    def set_epoch(self, epoch: int) -> None:
        """Name the epoch of the next pass."""
        self.stream.epochs.set_epoch(epoch, is_firm=False)


class Accompanying(EpochSampler):
    """The keys of the pass that is running, for a library that records them with its batches."""

    def batches(self) -> Iterator[list[SampleKey]]:
        """Yield the keys of the epoch that began last, one list for each batch."""
        epoch = self.stream.epochs.begun
        for step in range(self.stream.num_batches()):
            yield keys_of_batch(self.stream, epoch, step)


class InOrder(EpochSampler, SequentialSampler):
    """An `EpochSampler` that libraries recognise as one without shuffling."""


class Shuffled(EpochSampler, RandomSampler):
    """An `EpochSampler` that libraries recognise as one with shuffling."""

    def __init__(self, stream: KeyedStream, data_source: Any, generator: Any = None) -> None:
        # Not `RandomSampler.__init__`, which asks the data set for its length. The attributes that
        # it would set are set here: libraries read them to make another sampler.
        EpochSampler.__init__(self, stream, data_source)
        self.replacement = False
        self._num_samples = None
        self.generator = generator


class Shared(EpochSampler, DistributedSampler[Any]):
    """An `EpochSampler` of a loader that shares its batches among ranks itself.

    Libraries do not replace a DistributedSampler by one of their own.
    """

    def __init__(self, stream: KeyedStream, data_source: Any, shuffle: bool) -> None:
        # Not `DistributedSampler.__init__`, which requires a process group. Libraries read the
        # attributes that it would set.
        EpochSampler.__init__(self, stream, data_source)
        self.dataset = data_source
        self.shuffle = shuffle
        self.seed = 0
        self.drop_last = False

    @property
    def rank(self) -> int:  # type: ignore[override]
        return self.stream.rank_and_world_size[0]

    @property
    def num_replicas(self) -> int:  # type: ignore[override]
        return self.stream.rank_and_world_size[1]

    @property
    def epoch(self) -> int:  # type: ignore[override]
        return self.stream.epochs.upcoming()


class Batches(BatchSampler):
    """The batches of an epoch, over all ranks, as lists of keys.

    Args:
        sampler: an `EpochSampler`. A library that copies this batch sampler may pass a sampler of
            its own; `detaug.DataLoader` then reads that one.
        batch_size: samples in a batch. None: batches differ in size, or the size is not known.
        drop_last: as in torch; read by other libraries only.
        custom: the user's own batch sampler; its other attributes are available here too.
    """

    sampler: Any

    def __init__(
        self,
        sampler: Any,
        batch_size: int | None = None,
        drop_last: bool = False,
        custom: Any = None,
    ) -> None:
        self.sampler = sampler
        self.batch_size: Any = batch_size
        self.drop_last = drop_last
        self.custom = custom

    def __iter__(self) -> Iterator[list[SampleKey]]:  # type: ignore[override]
        key_lists: Iterator[list[SampleKey]] = self.sampler.batches()
        return key_lists

    def __len__(self) -> int:
        return int(self.sampler.stream.num_batches())

    def set_epoch(self, epoch: int) -> None:
        """Name the epoch of the next pass."""
        self.sampler.set_epoch(epoch)

    def __getattr__(self, name: str) -> Any:
        # By __dict__: before the constructor has run, self.custom would come here again.
        custom = self.__dict__.get("custom")
        if custom is None or name.startswith("__"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(custom, name)


class ReadBatch(list[Any]):
    """A list of the one batch that a rebuilt DataLoader returns."""


class ForeignSamples(list[Any]):
    """Samples that were fetched by plain indices, all at once, as only a DataLoader does."""


class DatasetView(Dataset[Any]):
    """The user's data set, which also returns the loader's batches by their keys.

    It has the data set's attributes, items and class. `detaug.DataLoader` unwraps it.
    """

    def __init__(self, dataset: Any, stream: KeyedStream) -> None:
        # By __dict__: setattr would set attributes of the data set.
        self.__dict__["_dataset"] = dataset
        self.__dict__["_stream"] = stream

    @property
    def __class__(self) -> Any:
        # So that `isinstance(loader.dataset, ...)` finds the wrapped data set's class.
        return type(self._dataset)

    @__class__.setter
    def __class__(self, value: Any) -> None:
        raise TypeError("the class of a loader's data set cannot be changed")

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_dataset"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._dataset, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._dataset, name)

    def __dir__(self) -> Iterable[str]:
        return dir(self._dataset)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._dataset)

    def __eq__(self, other: object) -> bool:
        return bool(self._dataset == unwrapped(other))

    def __hash__(self) -> int:
        return hash(self._dataset)

    def __repr__(self) -> str:
        return repr(self._dataset)

    def __reduce_ex__(self, protocol: Any) -> Any:
        # Another process has no loader to read batches from: it gets the data set alone.
        return unwrapped, (self._dataset,)


class IterableView(DatasetView):
    """The view of an iterable data set without a length."""


class SizedIterableView(DatasetView):
    """The view of an iterable data set with a length."""

    def __len__(self) -> int:
        return len(self._dataset)


class MapView(DatasetView):
    """The view of a map-style data set.

    torchdata's StatefulDataLoader saves a data set's state; here that is the epoch being read.
    """

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: Any) -> Any:
        """Return a sample, or a batch for a key of a loader without batch size."""
        # Without a batch size, libraries fetch one item for each key, and an item is a whole batch.
        if isinstance(index, SampleKey) and self._stream.has_single_items:
            return self.__getitems__([index])
        return self._dataset[index]

    def __getitems__(self, indices: list[Any]) -> list[Any]:
        """Return a `ReadBatch` for keys, or `ForeignSamples` for plain indices.

        Raises:
            RuntimeError: a worker process of another DataLoader asks for keys.
        """
        if not indices or not isinstance(indices[0], SampleKey):
            return ForeignSamples(self._samples(indices))
        worker = get_worker_info()
        if worker is not None:
            raise RuntimeError(
                "the loader's own workers make these batches, and a DataLoader's worker processes "
                "cannot read them: make that DataLoader with num_workers=0, and this loader with "
                f"{worker.num_workers}"
            )
        return ReadBatch([self._stream.batch_of(indices)])

    def _samples(self, indices: list[Any]) -> list[Any]:
        fetch_many = getattr(self._dataset, "__getitems__", None)
        if callable(fetch_many):
            return list(fetch_many(indices))
        return [self._dataset[index] for index in indices]

    def set_epoch(self, epoch: int) -> None:
        """Name the epoch of the next pass.

        Accelerate calls it when its own wrappers hide the sampler (skip_first_batches on several
        ranks).
        """
        self._stream.epochs.set_epoch(epoch, is_firm=False)
        set_epoch = getattr(self._dataset, "set_epoch", None)
        if callable(set_epoch):
            set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Return the epoch that a loader made of this data set reads."""
        return {"next_epoch": self._stream.keyed_epoch()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Begin the next pass at the saved epoch's start; the other loader skips by itself."""
        self._stream.epochs.load(int(state["next_epoch"]), None)


def unwrapped(dataset: Any) -> Any:
    """Return the user's data set of a view, and any other object unchanged."""
    # Not isinstance: a view has the class of its data set.
    if issubclass(type(dataset), DatasetView):
        return dataset._dataset
    return dataset


class Collate:
    """The collate function of a DataLoader made of a loader's attributes: returns finished batches.

    Args:
        function: the user's own collate function; `detaug.DataLoader` unwraps it. None: torch's.
        stream: the loader that has the batches.
    """

    def __init__(self, function: Any, stream: KeyedStream) -> None:
        self.function = function
        self.stream = stream

    def __call__(self, samples: Any) -> Any:
        """Return the batch that was read by keys.

        Raises:
            RuntimeError: samples were fetched in an order that is not the loader's.
        """
        if isinstance(samples, ReadBatch):
            (batch,) = samples
            return batch
        if isinstance(samples, ForeignSamples) or self.stream.refuses_samples:
            raise RuntimeError(REBUILT)
        return (self.function or default_collate)(samples)


#: The message for a DataLoader that fetches samples in an order of its own.
REBUILT = (
    "a library has made a torch DataLoader out of this detaug.DataLoader's attributes, with a "
    "sampler of its own: its batches would be others than detaug's. Where ranks are to share "
    "batches, pass shard=True to detaug.DataLoader (Ray Train's prepare_data_loader then leaves it "
    "as it is); an IterableDataset, or a loader with batch_size=None, is read as it is, without "
    "prepare"
)
