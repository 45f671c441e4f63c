"""Which items of a data set an epoch takes, and in what order: a pure function of the epoch's SeedSequence child."""

from __future__ import annotations

import io
import operator
import pickle
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import cloudpickle
import numpy as np
import xxhash
from torch.utils.data import Dataset, DistributedSampler

from detaug.seeding.current import making
from detaug.seeding.generators import GENERATORS, preserved_global_rngs, reseed_global_rngs
from detaug.seeding.libraries import preserved_libraries
from detaug.seeding.reseeders import reseeder_of
from detaug.seeding.tree import of_part
from detaug.sources.base import tell
from detaug.sources.feistel import Feistel

#: A permutation of more items than this is not kept, but computed item by item.
LARGE = 2**20
#: Epochs whose orders a process keeps.
_KEPT = 4

Array = np.ndarray[Any, np.dtype[Any]]


class Order(ABC):
    """The order of an epoch.

    Attributes:
        length: how many entries it has: items, or lists of items where `gives_batches`.
        gives_batches: its entries are whole batches.
    """

    length: int
    gives_batches = False

    @abstractmethod
    def entries(self, entropy: tuple[int, ...], epoch: int, first: int, last: int) -> list[Any]:
        """Those from `first` to before `last`; `entropy`: of the seed branch."""

    def declared(self) -> list[str]:
        """What a state dict is compared by beside `parts`, a line each."""
        return []

    def parts(self) -> dict[str, Any]:
        """What a state dict is compared by: objects of the user's, by name."""
        return {}


class AsStored(Order):
    """The data set's own order."""

    def __init__(self, length: int) -> None:
        self.length = length

    def entries(self, entropy: tuple[int, ...], epoch: int, first: int, last: int) -> list[Any]:
        return list(range(first, last))


class Shuffled(Order):
    """A permutation.

    Args:
        length: of the data set.
        large: above this length `Feistel`'s, else `sorted_permutation`.
    """

    def __init__(self, length: int, large: int = LARGE) -> None:
        self.length = length
        self._is_large = length > large

    def entries(self, entropy: tuple[int, ...], epoch: int, first: int, last: int) -> list[Any]:
        if self._is_large:
            of_places = Feistel(self.length, np.random.SeedSequence(entropy, spawn_key=(epoch,)))
            found: list[Any] = of_places(np.arange(first, last)).tolist()
            return found
        return [int(i) for i in sorted_permutation(self.length, entropy, epoch)[first:last]]

    def declared(self) -> list[str]:
        return ["permutation = Feistel"] if self._is_large else []


@lru_cache(maxsize=_KEPT)
def sorted_permutation(length: int, entropy: tuple[int, ...], epoch: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The permutation of 0 ... length-1 of that epoch, int64.

    Sorted by raw 64-bit draws of the epoch's child rather than by ``Generator.permutation``, whose stream NumPy may
    change between versions (NEP 19); equal draws keep their order.
    """
    child = np.random.SeedSequence(entropy, spawn_key=(epoch,))
    keys = np.random.PCG64DXSM(child).random_raw(length)
    return np.argsort(keys, kind="stable").astype(np.int64)


class Drawn(Order):
    """An order that is drawn as a whole, once per epoch in each process."""

    def __init__(self) -> None:
        self._drawn: dict[tuple[tuple[int, ...], int], Any] = {}

    def entries(self, entropy: tuple[int, ...], epoch: int, first: int, last: int) -> list[Any]:
        key = entropy, epoch
        if key not in self._drawn:
            if len(self._drawn) == _KEPT:
                self._drawn.clear()
            self._drawn[key] = self._draw(np.random.SeedSequence(entropy, spawn_key=(epoch,)), epoch)
        return list(self._drawn[key][first:last])

    @abstractmethod
    def _draw(self, child: np.random.SeedSequence, epoch: int) -> Sequence[Any]: ...


class Weighted(Drawn):
    """As many items as the data set has, drawn with replacement.

    Args:
        weights: of the items, ``(length,)``; their sum need not be 1.
        length: of the data set.

    Raises:
        ValueError: other than `length` of them, negative or not finite ones, or all 0.
    """

    def __init__(self, weights: Any, length: int) -> None:
        super().__init__()
        self.length = length
        self.weights = np.array(weights, np.float64)
        if self.weights.shape != (length,):
            raise ValueError(f"weights must be one for each of {length} samples, got shape {self.weights.shape}")
        bad = np.flatnonzero(~(np.isfinite(self.weights) & (self.weights >= 0)))
        if bad.size:
            raise ValueError(f"weights must be finite and not negative, got weights[{bad[0]}] = {self.weights[bad[0]]}")
        self._sums = np.cumsum(self.weights)
        if not 0 < self._sums[-1] < np.inf:
            raise ValueError(f"the sum of the weights must be positive and finite, got {self._sums[-1]}")

    def _draw(self, child: np.random.SeedSequence, epoch: int) -> Sequence[Any]:
        # Raw draws as 53-bit fractions (NEP 19), and a sum that is taken one by one: the same on every machine.
        fractions = (np.random.PCG64DXSM(child).random_raw(self.length) >> np.uint64(11)) * 2.0**-53
        drawn: list[int] = np.searchsorted(self._sums, fractions * self._sums[-1], side="right").tolist()
        return drawn

    def declared(self) -> list[str]:
        return [f"weights = {xxhash.xxh3_128_hexdigest(self.weights.astype('<f8').tobytes())}"]


class Sampled(Drawn):
    """What a sampler gives. Each epoch starts from the sampler as it was handed in, with all random generators that it holds
    or draws from seeded from the epoch's child.

    Args:
        sampler: an iterable with a length, of indices or, with `gives_batches`, of lists of them; with ``set_epoch``
            it is told the epoch.
        name: of the argument, for messages.

    Raises:
        TypeError: it has no length, or cannot be copied.
        ValueError: it gives one rank's share.
    """

    def __init__(self, sampler: Any, name: str, gives_batches: bool = False) -> None:
        super().__init__()
        self._name, self.gives_batches = name, gives_batches
        self._kind = type(sampler).__name__
        try:
            self.length = len(sampler)
        except (TypeError, NotImplementedError):
            raise TypeError(
                f"{name} must have a length, for an epoch's number of batches to be known; {self._kind} has none. Pass a list, "
                "or an object with __len__ and __iter__"
            ) from None
        inner = getattr(sampler, "sampler", sampler)
        if isinstance(inner, DistributedSampler) and inner.num_replicas > 1:
            raise ValueError(
                f"{type(inner).__name__} gives one of {inner.num_replicas} ranks its share, and an augmenter shares its "
                "batches out among ranks itself: leave the sampler out, and pass rank=... and world_size=..."
            )
        self._parts: list[Any] = []
        file = io.BytesIO()
        try:
            _Pickler(file, self._parts).dump(sampler)
        except Exception as error:
            raise TypeError(
                f"{name} is copied for every epoch, and {self._kind} cannot be: {error}. Pass a list, or an object with __len__ "
                "and __iter__"
            ) from error
        self._pickled = file.getvalue()

    def sampler(self, child: np.random.SeedSequence | None = None) -> Any:
        """The sampler as it was handed in, its generators seeded from `child`."""
        made: dict[int, Any] = {}

        def part(number: int) -> Any:
            if number not in made:
                kept = self._parts[number]
                made[number] = pickle.loads(kept) if isinstance(kept, bytes) else kept
                reseed = reseeder_of(type(made[number]))
                if child is not None and isinstance(kept, bytes) and reseed is not None:
                    reseed(made[number], of_part(child, b"sampler %d" % number))
            return made[number]

        unpickler = pickle.Unpickler(io.BytesIO(self._pickled))
        unpickler.persistent_load = part  # type: ignore[method-assign]
        return unpickler.load()

    def _draw(self, child: np.random.SeedSequence, epoch: int) -> Sequence[Any]:
        with preserved_global_rngs(), preserved_libraries(), making(None):
            reseed_global_rngs(of_part(child, b"sampler"))
            sampler = self.sampler(child)
            tell(sampler, "set_epoch", epoch)
            drawn = [self._entry(entry) for entry in sampler]
        if len(drawn) != self.length:
            raise ValueError(
                f"the {self._name} ({self._kind}) gave {len(drawn)} entries in epoch {epoch}, but its length is {self.length}: "
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
    """Sets aside data sets, which are not copied, and generators, which are seeded: the latter as bytes, so that nothing
    else takes them for the data set's."""

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
