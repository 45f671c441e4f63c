"""Which items of a data set an epoch takes, and in what order: a pure function of the epoch's
SeedSequence child.
"""

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
from detaug.pipeline.sources.base import tell
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
#: Epochs whose orders a process keeps.
_KEPT = 4


class Order(ABC):
    """The order of an epoch.

    Attributes:
        length: how many entries it has: items, or lists of items where `gives_batches`.
    """

    gives_batches = False

    def __init__(self, length: int) -> None:
        self.length = length
        self._drawn: dict[tuple[tuple[int, ...], int], Any] = {}

    def entries(self, entropy: tuple[int, ...], epoch: int, first: int, last: int) -> list[Any]:
        """Those from `first` to before `last`; `entropy`: of the seed branch."""
        key = entropy, epoch
        if key not in self._drawn:
            if len(self._drawn) == _KEPT:
                self._drawn.clear()
            self._drawn[key] = self._draw(
                np.random.SeedSequence(entropy, spawn_key=(epoch,)), epoch
            )
        found = self._drawn[key][first:last]
        return found.tolist() if isinstance(found, np.ndarray) else list(found)

    @abstractmethod
    def _draw(self, child: np.random.SeedSequence, epoch: int) -> Any:
        """The whole order, of which slices are taken."""

    def declared(self) -> list[str]:
        """What a state dict is compared by beside `parts`, a line each."""
        return []

    def parts(self) -> dict[str, Any]:
        """What a state dict is compared by: objects of the user's, by name."""
        return {}


class AsStored(Order):
    """The data set's own order."""

    def _draw(self, child: np.random.SeedSequence, epoch: int) -> range:
        return range(self.length)


class Shuffled(Order):
    """A permutation of so many items; of more than `large` it is a `Feistel`."""

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
        return ["permutation = Feistel"] if self._is_large else []


class Feistel:
    """A permutation of 0 ... length-1 in which each place is computed by itself, without time or
    memory before the first.

    It is a Feistel network over the next power of four. A place whose item is `length` or more
    walks on through the network until it meets one that is less: it begins inside, so that it
    returns there, and needs less than four steps on average. Its rounds' keys are raw 64-bit draws
    of `child` (NEP 19). Of four rounds the result looks random to anyone who may ask for some of
    its places (Luby and Rackoff, 1988); these are eight.
    """

    def __init__(self, length: int, child: np.random.SeedSequence) -> None:
        self._length = np.uint64(length)
        half = max(1, -(-(length - 1).bit_length() // 2))
        self._half, self._mask = np.uint64(half), np.uint64((1 << half) - 1)
        self._keys = np.random.PCG64DXSM(child).random_raw(8)

    def __getitem__(self, places: slice) -> np.ndarray[Any, np.dtype[np.uint64]]:
        items = self._through(np.arange(places.start, places.stop, dtype=np.uint64))
        while (outside := items >= self._length).any():
            items[outside] = self._through(items[outside])
        return items

    def _through(
        self, words: np.ndarray[Any, np.dtype[np.uint64]]
    ) -> np.ndarray[Any, np.dtype[np.uint64]]:
        left, right = words >> self._half, words & self._mask
        for key in self._keys:
            # SplitMix64's finaliser (Stafford's variant 13): each bit of a word depends on all of
            # its bits.
            mixed = right ^ key
            mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            left, right = right, left ^ ((mixed ^ (mixed >> np.uint64(31))) & self._mask)
        return (left << self._half) | right


class Sampled(Order):
    """What a sampler (with `gives_batches`, of lists of indices) gives. Each epoch starts from the
    sampler as it was handed in, with all random generators that it holds or draws from seeded from
    the epoch's child. One with ``set_epoch`` is told it.

    Raises:
        TypeError: it has no length, or cannot be copied.
        ValueError: it gives one rank's share.
    """

    def __init__(self, sampler: Any, name: str, gives_batches: bool = False) -> None:
        self._name, self.gives_batches = name, gives_batches
        self._kind = type(sampler).__name__
        try:
            super().__init__(length_of(sampler))
        except (TypeError, NotImplementedError):
            raise TypeError(
                f"{name} must have a length, for an epoch's number of batches to be known; "
                f"{self._kind} has none. Pass a list, "
                "or an object with __len__ and __iter__"
            ) from None
        inner = getattr(sampler, "sampler", sampler)
        if isinstance(inner, DistributedSampler) and inner.num_replicas > 1:
            raise ValueError(
                f"{type(inner).__name__} gives one of {inner.num_replicas} ranks its share, and an "
                "augmenter shares its "
                "batches out among ranks itself: leave the sampler out, and pass rank=... and "
                "world_size=..."
            )
        self._parts: list[Any] = []
        file = io.BytesIO()
        try:
            _Pickler(file, self._parts).dump(sampler)
        except Exception as error:
            raise TypeError(
                f"{name} is copied for every epoch, and {self._kind} cannot be: {error}. Pass a "
                "list, or an object with __len__ "
                "and __iter__"
            ) from error
        self._pickled = file.getvalue()

    def sampler(self, child: np.random.SeedSequence | None = None) -> Any:
        """The sampler as it was handed in, its generators seeded from `child`."""
        made = []
        for number, kept in enumerate(self._parts):
            part = pickle.loads(kept) if isinstance(kept, bytes) else kept
            reseed = reseeder_of(type(part))
            if child is not None and isinstance(kept, bytes) and reseed is not None:
                reseed(part, of_part(child, b"sampler %d" % number))
            made.append(part)
        unpickler = pickle.Unpickler(io.BytesIO(self._pickled))
        unpickler.persistent_load = made.__getitem__  # type: ignore[method-assign]
        return unpickler.load()

    def _draw(self, child: np.random.SeedSequence, epoch: int) -> list[Any]:
        with preserved_global_rngs(), making(None):
            reseed_global_rngs(of_part(child, b"sampler"))
            sampler = self.sampler(child)
            tell(sampler, "set_epoch", epoch)
            drawn = [self._entry(entry) for entry in sampler]
        if len(drawn) != self.length:
            raise ValueError(
                f"the {self._name} ({self._kind}) gave {len(drawn)} entries in epoch {epoch}, but "
                f"its length is {self.length}: "
                "every epoch must have as many as it says"
            )
        return drawn

    def _entry(self, entry: Any) -> Any:
        if not self.gives_batches:
            return _plain(entry)
        batch = [_plain(index) for index in entry]
        if not batch:
            raise ValueError(f"the {self._name} ({self._kind}) gave a batch without samples")
        return batch

    def parts(self) -> dict[str, Any]:
        return {self._name: self.sampler()}


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Sets `parts` aside: data sets, which are not copied, and generators, which are seeded; the
    latter as bytes, so that nothing else takes them for the data set's.
    """

    def __init__(self, file: io.BytesIO, parts: list[Any]) -> None:
        super().__init__(file, protocol=5)
        self._parts = parts
        self._numbers: dict[int, int] = {}

    def persistent_id(self, obj: Any) -> int | None:
        is_generator = isinstance(obj, GENERATORS)
        if not is_generator and not isinstance(obj, Dataset):
            return None
        if id(obj) not in self._numbers:
            self._numbers[id(obj)] = len(self._parts)
            self._parts.append(pickle.dumps(obj) if is_generator else obj)
        return self._numbers[id(obj)]


def _plain(index: Any) -> Any:
    """NumPy's and torch's integers as Python's; what is none (a key) as it is."""
    try:
        return operator.index(index)
    except TypeError:
        return index
