"""The items of a data set in an epoch's order: a pure function of the epoch's SeedSequence."""

from __future__ import annotations

import io
import operator
import pickle
from abc import ABC, abstractmethod
from typing import Any

import cloudpickle
import numpy as np
from torch.utils.data import Dataset, DistributedSampler

from detaug.pipeline.sources.argument_hints import length_of
from detaug.pipeline.sources.base import call_if_present
from detaug.seeding.current import making
from detaug.seeding.generators import (
    GENERATORS,
    preserved_global_rngs,
    reseed_global_rngs,
)
from detaug.seeding.reseeders import reseeder_of
from detaug.seeding.tree import of_part

#: A permutation of more items than this is not kept, but computed item by item.
LARGE = 2**20
#: How many epochs' orders a process keeps.
_KEPT = 4


class Order(ABC):
    """The order of an epoch.

    Attributes:
        length: how many entries it has: items, or, if `gives_batches`, lists of items.
    """

    gives_batches = False

    def __init__(self, length: int) -> None:
        self.length = length
        self._drawn: dict[tuple[tuple[int, ...], int], Any] = {}

    def entries(self, entropy: tuple[int, ...], epoch: int, first: int, last: int) -> list[Any]:
        """Return the entries from index `first` to before `last`.

        Args:
            entropy: that of the seed branch.
            epoch: the epoch.
            first: the first entry's index in the order.
            last: the index after the last entry's.
        """
        key = (entropy, epoch)
        if key not in self._drawn:
            # Two epochs alternate at an epoch's end; more are kept for replays and checks.
            if len(self._drawn) == _KEPT:
                self._drawn.clear()
            child = np.random.SeedSequence(entropy, spawn_key=(epoch,))
            self._drawn[key] = self._draw(child, epoch)
        entries = self._drawn[key][first:last]
        if isinstance(entries, np.ndarray):
            entries = entries.tolist()
        return list(entries)

    @abstractmethod
    def _draw(self, child: np.random.SeedSequence, epoch: int) -> Any:
        """Return the whole order, which can be sliced."""

    def declared(self) -> list[str]:
        """Return the lines that a state dict is compared by, in addition to `parts`."""
        return []

    def parts(self) -> dict[str, Any]:
        """Return the user's objects that a state dict is compared by, by name."""
        return {}

    def originals(self) -> dict[str, Any]:
        """Return the user's own objects, which the program may have changed since, by name."""
        return self.parts()


class AsStored(Order):
    """The data set's own order."""

    def _draw(self, child: np.random.SeedSequence, epoch: int) -> range:
        return range(self.length)


class Shuffled(Order):
    """A permutation of `length` items; of more than `large` items it is a `Feistel`."""

    def __init__(self, length: int, large: int = LARGE) -> None:
        super().__init__(length)
        self._is_large = length > large

    def _draw(self, child: np.random.SeedSequence, epoch: int) -> Feistel | np.ndarray[Any, Any]:
        if self._is_large:
            return Feistel(self.length, child)
        # Raw 64-bit draws are sorted, for NumPy may change the stream of `Generator.permutation`
        # between versions (NEP 19).
        return np.argsort(np.random.PCG64DXSM(child).random_raw(self.length), kind="stable")

    def declared(self) -> list[str]:
        if not self._is_large:
            return []
        return ["permutation = Feistel"]


class Feistel:
    """A permutation of 0 ... length-1 that computes each item from its index alone.

    It takes no time or memory before the first item. It is a Feistel network over the next power of
    four. An item of `length` or more passes through the network again until one is less than
    `length`: the walk begins below `length`, so that it returns there, and needs less than four
    steps on average. The rounds' keys are raw 64-bit draws of `child` (NEP 19). After four rounds
    the result looks random to anyone who may ask for some of its items (Luby and Rackoff, 1988);
    there are eight.
    """

    def __init__(self, length: int, child: np.random.SeedSequence) -> None:
        self._length = np.uint64(length)
        half = max(1, -(-(length - 1).bit_length() // 2))
        #: Bits of half a word, and a mask of them.
        self._half = np.uint64(half)
        self._mask = np.uint64((1 << half) - 1)
        self._keys = np.random.PCG64DXSM(child).random_raw(8)

    def __getitem__(self, indices: slice) -> np.ndarray[Any, np.dtype[np.uint64]]:
        items = self._through(np.arange(indices.start, indices.stop, dtype=np.uint64))
        is_outside = items >= self._length
        while is_outside.any():
            items[is_outside] = self._through(items[is_outside])
            is_outside = items >= self._length
        return items

    def _through(
        self, words: np.ndarray[Any, np.dtype[np.uint64]]
    ) -> np.ndarray[Any, np.dtype[np.uint64]]:
        left = words >> self._half
        right = words & self._mask
        for key in self._keys:
            # SplitMix64's finaliser (Stafford's variant 13): each bit of a word depends on all of
            # its bits.
            mixed = right ^ key
            mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            left, right = right, left ^ ((mixed ^ (mixed >> np.uint64(31))) & self._mask)
        return (left << self._half) | right


def length_of_sampler(sampler: Any, name: str) -> int:
    """Return the number of entries that a sampler gives in an epoch.

    Args:
        sampler: the user's.
        name: the argument's name, for the message.

    Raises:
        TypeError: it has no length.
    """
    try:
        return length_of(sampler)
    except (TypeError, NotImplementedError):
        raise TypeError(
            f"{name} must have a length, which sets the number of batches of an epoch; "
            f"{type(sampler).__name__} has none. Pass a list, or an object with __len__ and "
            "__iter__"
        ) from None


class Sampled(Order):
    """The order of a sampler's indices or, with `gives_batches`, lists of indices.

    Each epoch starts from the sampler as it was handed in, with all random generators that it holds
    or draws from seeded from the epoch's child. A sampler with ``set_epoch`` gets the epoch.

    Args:
        sampler: the user's.
        name: the argument's name, for messages.
        gives_batches: it gives lists of indices.

    Raises:
        TypeError: it has no length, or cannot be copied.
        ValueError: it gives one rank's share.
    """

    def __init__(self, sampler: Any, name: str, gives_batches: bool = False) -> None:
        self._name = name
        self.gives_batches = gives_batches
        self._kind = type(sampler).__name__
        super().__init__(length_of_sampler(sampler, name))
        inner = getattr(sampler, "sampler", sampler)
        if isinstance(inner, DistributedSampler) and inner.num_replicas > 1:
            raise ValueError(
                f"{type(inner).__name__} gives one of {inner.num_replicas} ranks its share, but an "
                "augmenter splits its batches among the ranks itself: leave the sampler out, and "
                "pass rank=... and world_size=..."
            )
        self._original = sampler
        self._parts: list[Any] = []
        file = io.BytesIO()
        try:
            _Pickler(file, self._parts).dump(sampler)
        except Exception as error:
            raise TypeError(
                f"{name} is copied for every epoch, and {self._kind} cannot be: {error}. Pass a "
                "list, or an object with __len__ and __iter__"
            ) from error
        self._pickled = file.getvalue()

    def sampler(self, child: np.random.SeedSequence | None = None) -> Any:
        """Return the sampler as it was handed in.

        Args:
            child: the seed of its generators; None: they are as they were.
        """
        parts = []
        for index, stored in enumerate(self._parts):
            is_generator = isinstance(stored, bytes)
            part = pickle.loads(stored) if is_generator else stored
            reseed = reseeder_of(type(part))
            if child is not None and is_generator and reseed is not None:
                reseed(part, of_part(child, b"sampler %d" % index))
            parts.append(part)
        unpickler = pickle.Unpickler(io.BytesIO(self._pickled))
        unpickler.persistent_load = parts.__getitem__  # type: ignore[method-assign]
        return unpickler.load()

    def _draw(self, child: np.random.SeedSequence, epoch: int) -> list[Any]:
        # The global generators may be the user's: `replay` draws the order in the user's process.
        # The order belongs to an epoch, so `detaug.current()` must not return a batch.
        with preserved_global_rngs(), making(None):
            reseed_global_rngs(of_part(child, b"sampler"))
            sampler = self.sampler(child)
            call_if_present(sampler, "set_epoch", epoch)
            entries = [self._entry(entry) for entry in sampler]
        if len(entries) != self.length:
            raise ValueError(
                f"the {self._name} ({self._kind}) gave {len(entries)} entries in epoch {epoch}, "
                f"but its length is {self.length}: every epoch must have that many"
            )
        return entries

    def _entry(self, entry: Any) -> Any:
        if not self.gives_batches:
            return _plain(entry)
        batch = [_plain(index) for index in entry]
        if not batch:
            raise ValueError(
                f"the {self._name} ({self._kind}) gave a batch without samples: every batch must "
                "have at least one"
            )
        return batch

    def parts(self) -> dict[str, Any]:
        return {self._name: self.sampler()}

    def originals(self) -> dict[str, Any]:
        if self._original is None:
            return {}
        return {self._name: self._original}

    def __getstate__(self) -> dict[str, Any]:
        # Copies of the source are made from the sampler as it was handed in.
        return {**vars(self), "_original": None}


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """A pickler that puts data sets, which are not copied, and generators into `parts`.

    Generators are put there as bytes, so that nothing treats them as the data set's.
    """

    def __init__(self, file: io.BytesIO, parts: list[Any]) -> None:
        super().__init__(file, protocol=5)
        self._parts = parts
        #: Indices into the parts, by ``id`` of the object.
        self._indices: dict[int, int] = {}

    def persistent_id(self, obj: Any) -> int | None:
        is_generator = isinstance(obj, GENERATORS)
        if not is_generator and not isinstance(obj, Dataset):
            return None
        if id(obj) not in self._indices:
            self._indices[id(obj)] = len(self._parts)
            self._parts.append(pickle.dumps(obj) if is_generator else obj)
        return self._indices[id(obj)]


def _plain(index: Any) -> Any:
    """Return NumPy's and torch's integers as Python's; a key that is no integer as it is."""
    try:
        return operator.index(index)
    except TypeError:
        return index
