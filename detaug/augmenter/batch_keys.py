"""Samplers, data sets and collation that other libraries take out of a loader, and what they may do
with them.

A library that makes another torch DataLoader out of a loader's attributes shards, skips and resumes
by what its batch sampler yields. Here that is a list of `SampleKey`: integers, each of which also
says of which batch it is which sample.

    Batches, EpochSampler   yield lists of keys, of all ranks, in the order of the epoch
              │
    DatasetView             __getitems__(keys): the batch that holds them, or parts of several
              │
    Collate                 passes such a batch on as it is; anything else was made by somebody
    else, and is an error

So the batches of a loader that was rebuilt are those of the loader itself, byte for byte, in
whatever order, share or part they are asked for.
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
    """A sample's index in its data set, which also says where in an epoch it is.

    Attributes:
        epoch, step: its batch.
        place: its place in the batch.
        size: how many samples the batch has.
    """

    epoch: int
    step: int
    place: int
    size: int

    def __new__(
        cls, index: int, epoch: int = 0, step: int = 0, place: int = 0, size: int = 1
    ) -> SampleKey:
        key = super().__new__(cls, index)
        key.epoch = epoch
        key.step = step
        key.place = place
        key.size = size
        return key

    def __getnewargs__(self) -> tuple[int, ...]:  # type: ignore[override]
        return int(self), self.epoch, self.step, self.place, self.size


class KeyedStream(Protocol):
    """What samplers and views need of a loader.

    Attributes:
        epochs: says which epoch comes next.
        rank_and_world_size: of this process, as far as the loader shares batches among ranks.
        has_single_items: it has no batch size, so that a sampler's entry is a whole batch.
        refuses_samples: samples that it did not make itself are none of its data set's.
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
        """Return an epoch's batches over all ranks."""

    def indices(self, epoch: int, step: int) -> list[Any]:
        """Return the indices of a batch's samples."""

    def batch_of(self, keys: Sequence[SampleKey]) -> Any:
        """Return the batch with these samples."""

    def keyed_epoch(self) -> int:
        """Return the epoch that is being read by keys, or that comes next."""


def keys_of_epoch(stream: KeyedStream) -> Iterator[list[SampleKey]]:
    """Yield the keys of the upcoming epoch, a list for every batch.

    The epoch is settled when the first list is asked for. It counts as given when a batch of it is
    read.

    Raises:
        RuntimeError: a state was loaded, which says where in an epoch to continue.
    """
    if stream.epochs.rest is not None:
        raise RuntimeError(
            "a state was loaded into this loader, and another loader made of it now begins at the "
            "epoch's start and skips "
            "by itself: load the state into one of them alone"
        )
    epoch = stream.epochs.upcoming()
    for step in range(stream.num_batches()):
        yield keys_of_batch(stream, epoch, step)


def keys_of_batch(stream: KeyedStream, epoch: int, step: int) -> list[SampleKey]:
    """Return the keys of one batch."""
    indices = stream.indices(epoch, step)
    size = len(indices)
    keys = []
    for place, index in enumerate(indices):
        # What is no number (a sampler may give names) is known by its place alone.
        number = index if isinstance(index, int) else place
        keys.append(SampleKey(number, epoch, step, place, size))
    return keys


class EpochSampler(Sampler[SampleKey]):
    """The samples of an epoch, over all ranks, in order."""

    def __init__(self, stream: KeyedStream, data_source: Any) -> None:
        self.stream = stream
        self.data_source = data_source

    def batches(self) -> Iterator[list[SampleKey]]:
        """Yield the keys of the upcoming epoch, a list for every batch."""
        return keys_of_epoch(self.stream)

    def __iter__(self) -> Iterator[SampleKey]:
        for keys in self.batches():
            yield from keys

    def __len__(self) -> int:
        return len(self.data_source)

    def set_epoch(self, epoch: int) -> None:
        """Name the epoch of the next pass."""
        self.stream.epochs.set_epoch(epoch, is_firm=False)


class Accompanying(EpochSampler):
    """The samples of the pass that is under way, for a library that notes them beside its batches."""

    def batches(self) -> Iterator[list[SampleKey]]:
        """Yield the keys of the epoch that began last, a list for every batch."""
        epoch = self.stream.epochs.begun
        for step in range(self.stream.num_batches()):
            yield keys_of_batch(self.stream, epoch, step)


class InOrder(EpochSampler, SequentialSampler):
    """An `EpochSampler` that libraries recognise as one without shuffling."""


class Shuffled(EpochSampler, RandomSampler):
    """An `EpochSampler` that libraries recognise as one with shuffling."""

    def __init__(self, stream: KeyedStream, data_source: Any, generator: Any = None) -> None:
        EpochSampler.__init__(self, stream, data_source)
        self.replacement = False
        self._num_samples = None
        self.generator = generator


class Shared(EpochSampler, DistributedSampler[Any]):
    """An `EpochSampler` of a loader that shares its batches among ranks itself.

    Libraries put no sampler of theirs in the place of a DistributedSampler.
    """

    def __init__(self, stream: KeyedStream, data_source: Any, shuffle: bool) -> None:
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
        sampler: an `EpochSampler`. A library that remakes this batch sampler passes one of its own,
            which the loader reads off it (see `detaug.DataLoader`).
        batch_size: samples in a batch; None: they differ, or are not known.
        custom: the user's own batch sampler, whose other attributes this one has too.
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
        batches: Iterator[list[SampleKey]] = self.sampler.batches()
        return batches

    def __len__(self) -> int:
        return int(self.sampler.stream.num_batches())

    def set_epoch(self, epoch: int) -> None:
        """Name the epoch of the next pass."""
        self.sampler.set_epoch(epoch)

    def __getattr__(self, name: str) -> Any:
        custom = self.__dict__.get("custom")
        if custom is None or name.startswith("__"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(custom, name)


class ReadBatch(list[Any]):
    """The one batch that a rebuilt DataLoader is to pass on."""


class ForeignSamples(list[Any]):
    """Samples that were asked for by plain indices, all at once, as only a DataLoader does."""


class DatasetView(Dataset[Any]):
    """The user's data set, which also gives the loader's batches by their keys.

    It has the data set's attributes, items and class; `detaug.DataLoader` takes the data set itself
    out of it.
    """

    def __init__(self, dataset: Any, stream: KeyedStream) -> None:
        self.__dict__["_dataset"] = dataset
        self.__dict__["_stream"] = stream

    @property
    def __class__(self) -> Any:
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
        return unwrapped, (self._dataset,)


class IterableView(DatasetView):
    """The view of an iterable data set without a length."""


class SizedIterableView(DatasetView):
    """The view of an iterable data set with a length."""

    def __len__(self) -> int:
        return len(self._dataset)


class MapView(DatasetView):
    """The view of a map-style data set.

    torchdata's StatefulDataLoader saves a data set's state: here, which epoch is being read.
    """

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: Any) -> Any:
        """Return a sample; a batch for a key of a loader without batch size."""
        if isinstance(index, SampleKey) and self._stream.has_single_items:
            return self.__getitems__([index])
        return self._dataset[index]

    def __getitems__(self, indices: list[Any]) -> list[Any]:
        """Return a `ReadBatch` for keys, samples for plain indices."""
        if not indices or not isinstance(indices[0], SampleKey):
            return ForeignSamples(self._samples(indices))
        worker = get_worker_info()
        if worker is not None:
            raise RuntimeError(
                "the loader's own workers make these batches, and a DataLoader's worker processes "
                "cannot read them: make "
                f"that DataLoader with num_workers=0, and this loader with {worker.num_workers}"
            )
        return ReadBatch([self._stream.batch_of(indices)])

    def _samples(self, indices: list[Any]) -> list[Any]:
        fetch_many = getattr(self._dataset, "__getitems__", None)
        if callable(fetch_many):
            return list(fetch_many(indices))
        return [self._dataset[index] for index in indices]

    def set_epoch(self, epoch: int) -> None:
        """Name the epoch of the next pass.

        Accelerate calls it where its own wrappers hide the sampler (skip_first_batches on several
        ranks).
        """
        self._stream.epochs.set_epoch(epoch, is_firm=False)
        set_epoch = getattr(self._dataset, "set_epoch", None)
        if callable(set_epoch):
            set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Return which epoch a loader made of this data set reads."""
        return {"next_epoch": self._stream.keyed_epoch()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Have the next pass give that epoch, from which the loader skips by itself."""
        self._stream.epochs.load(int(state["next_epoch"]), None)


def unwrapped(dataset: Any) -> Any:
    """Return the user's data set of a view, and anything else as it is."""
    # Not isinstance: a view has the class of its data set.
    if issubclass(type(dataset), DatasetView):
        return dataset._dataset
    return dataset


class Collate:
    """What a DataLoader made of a loader's attributes collates: a batch, ready as it is.

    Args:
        function: the user's own; `detaug.DataLoader` takes it out again.
        stream: the loader whose batches these are.
    """

    def __init__(self, function: Any, stream: KeyedStream) -> None:
        self.function = function
        self.stream = stream

    def __call__(self, samples: Any) -> Any:
        """Return the batch that was read.

        Raises:
            RuntimeError: samples were read, in an order that is not the loader's.
        """
        if isinstance(samples, ReadBatch):
            (batch,) = samples
            return batch
        if isinstance(samples, ForeignSamples) or self.stream.refuses_samples:
            raise RuntimeError(REBUILT)
        return (self.function or default_collate)(samples)


#: For whoever is given a DataLoader that asks for samples in an order of its own.
REBUILT = (
    "a library has made a torch DataLoader out of this detaug.DataLoader's attributes, with a "
    "sampler of its own: its batches "
    "would be others than detaug's. Where ranks are to share batches, pass shard=True to "
    "detaug.DataLoader (Ray Train's "
    "prepare_data_loader then leaves it as it is); an IterableDataset, or a loader with "
    "batch_size=None, is read as it is, "
    "without prepare"
)
