"""`Snapshot`: an object as it is now, from which equal copies are made.

Copies are made within this process and those forked from it. Everything that can change is copied,
whatever container or class it is in: pickle walks through the object, and so meets all of it.
Classes, modules and functions without their own variables are shared
(`detaug.pipeline.copying.reducers`), so a copy is an instance of the very same classes; large
arrays are mapped copy-on-write (`detaug.pipeline.copying.large_arrays`).

On its way through the object the pickler lists the parts that are reseeded, or get the epoch, in
each copy.
"""

from __future__ import annotations

import io
import pickle
import types
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache
from inspect import getattr_static
from types import FrameType
from typing import Any

import numpy as np
import torch

from detaug.objects.walking import attributes_of, paths_of, walk
from detaug.pipeline.copying.generators import SeededPart, seeded_parts
from detaug.pipeline.copying.large_arrays import BULK_BYTES, BulkStore
from detaug.pipeline.copying.reducers import (
    BY_REFERENCE,
    REDUCERS,
    SharedRef,
    is_shared_function,
    reduce_by_class,
    reduce_tensor,
)
from detaug.seeding.reseeders import reseeder_of
from detaug.seeding.tree import of_part
from detaug.system.interception import listening
from detaug.system.processes import is_standard_stream

#: By class: attributes that can be computed again from the object's arguments, and that hold values
#: which are only read. batchgeneratorsv2 keeps a grid of coordinates by patch size (24 MB at
#: nnU-Net's usual one, 70 ms to make).
_KNOWN_CACHES = {"batchgeneratorsv2.transforms.spatial.spatial.SpatialTransform": ("_grid_cache",)}
#: The default of a class that has none.
_ABSENT = object()
_ATOMS = frozenset(
    {str, bytes, int, float, complex, bool, type(None), tuple, dict, list, set, frozenset}
)


class CannotCopy(TypeError):
    """An error that names the object in a pipeline that cannot be copied: `value`."""

    value: Any = None


class Snapshot:
    """An object as it is now.

    Args:
        value: the object.
        roots: the object, or its parts, by the names that paths begin with. Each generator is keyed
            by its path, found once and on the original: what is added to a pipeline elsewhere, or
            made while it runs, changes no other generator's numbers. None: the copies' generators
            are not seeded.
        replacements: objects that copies share with what `copy` gets instead, in this order.
        keep: names of attributes that are left out of the copies.
        share_uncopyable: an object that cannot be copied is shared; otherwise `CannotCopy` is
            raised.
        is_untouched: the object is as it was passed, so that nothing has been written to its
            arrays.
        stores_arrays: the contents of large arrays are stored. Otherwise copies have views of the
            object's own arrays, until `store_arrays` is called.

    Raises:
        CannotCopy: an object cannot be copied; the error's `value` is that object.
    """

    def __init__(
        self,
        value: Any,
        *,
        roots: Mapping[str, Any] | None = None,
        replacements: Iterable[Any] = (),
        keep: Collection[str] = (),
        share_uncopyable: bool = False,
        is_untouched: bool = False,
        stores_arrays: bool = True,
    ) -> None:
        pickler = _Pickler(replacements, keep, share_uncopyable)
        pickler.dump(value)
        self._pickled = pickler.file.getvalue()
        self._table: list[Any] = pickler.table
        #: The parts that each copy registers: generators, objects with a seeding protocol or
        #: ``set_epoch``, and those with attributes in `keep`.
        self.originals: list[Any] = pickler.parts
        #: The classes of all instances that were met.
        self.kinds: list[type] = list(pickler.kinds)
        #: Classes, modules and functions that copies share.
        self.references: list[Any] = [
            entry for entry in pickler.table if not isinstance(entry, (dict, np.ndarray))
        ]
        #: How many transforms had their choice of an algorithm by the clock switched off.
        self.num_benchmarks_disabled = pickler.num_benchmarks_disabled
        self._bulk = pickler.bulk
        self._is_untouched = is_untouched
        if stores_arrays:
            self.store_arrays()
        self.roots: Mapping[str, Any] = {}
        #: The generators among the parts, by their index.
        self.generators: list[SeededPart] = []
        if roots is not None:
            self.roots = roots
            self.generators = self._generators_below(roots)
        #: The indices of the parts with ``set_epoch``.
        self.epoch_aware_parts = []
        for index, part in enumerate(self.originals):
            if callable(getattr(part, "set_epoch", None)):
                self.epoch_aware_parts.append(index)

    def store_arrays(self) -> None:
        """Store the contents of large arrays as they are now."""
        self._bulk.seal(self._is_untouched)

    def _generators_below(self, roots: Mapping[str, Any]) -> list[SeededPart]:
        paths = paths_of(self.originals, roots)
        parts = []
        for index, part in enumerate(self.originals):
            parts.append((index, paths.get(id(part), f"#{index}"), part))
        return seeded_parts(parts)

    def copy(
        self, replacements: Iterable[Any] = (), *, is_sole_copy: bool = False
    ) -> tuple[Any, list[Any]]:
        """Return an equal object that shares nothing that can change with any other, and its parts.

        The parts are in the order of `originals`; None for one that was not constructed.

        Args:
            replacements: take the place of the snapshot's own.
            is_sole_copy: the process has no other copy and does not use the original: large arrays
                are passed without a copy.
        """
        parts: list[Any] = [None] * len(self.originals)

        def register(index: int, function: Callable[..., Any], *arguments: Any) -> Any:
            part = function(*arguments)
            parts[index] = part
            return part

        # The tables of `_Pickler`'s persistent ids.
        objects = {
            "table": self._table,
            "external": (register, *replacements),
            "bulk": self._bulk.views(is_sole_copy),
        }

        def load_persistent(pid: tuple[str, int]) -> Any:
            table, index = pid
            return objects[table][index]

        unpickler = pickle.Unpickler(io.BytesIO(self._pickled))
        unpickler.persistent_load = load_persistent  # type: ignore[method-assign]
        return unpickler.load(), parts


class SnapshotCopy:
    """A copy whose generators can be seeded and whose parts can be given the epoch."""

    def __init__(self, snapshot: Snapshot, copy: tuple[Any, list[Any]]) -> None:
        self.snapshot = snapshot
        self.value, self.parts = copy

    def reseed(self, child: np.random.SeedSequence) -> None:
        """Seed every generator that it owns for a batch (or sample, or epoch)."""
        for generator in self.snapshot.generators:
            part = self.parts[generator.handle]
            if part is not None:
                generator.reseed(part, of_part(child, generator.key))

    def generators(self) -> list[Any]:
        """Return the generators that it owns."""
        return [self.parts[generator.handle] for generator in self.snapshot.generators]

    def find_generators_again(self, name: str, root: Any) -> None:
        """Seed, from now on, the generators that are below `root` now at the known paths."""
        values = dict(walk([(name, root)]))
        for generator in self.snapshot.generators:
            if generator.path not in values:
                continue
            value = values[generator.path]
            if reseeder_of(type(value)) is generator.reseed:
                self.parts[generator.handle] = value

    def set_epoch_on_parts(self, epoch: int) -> None:
        """Call ``set_epoch`` of every part that has one, outermost first, each once.

        A part whose ``set_epoch`` was called by another one's is not called again.
        """
        called: set[int] = set()

        def note_call(frame: FrameType, event: str, _: Any) -> None:
            code = frame.f_code
            if event == "call" and code.co_name == "set_epoch" and code.co_argcount:
                called.add(id(frame.f_locals.get(code.co_varnames[0])))

        for index in self.snapshot.epoch_aware_parts:
            part = self.parts[index]
            # Compositions pass the call on to their parts, which may count calls.
            if part is not None and id(part) not in called:
                with listening(note_call):
                    part.set_epoch(epoch)


def _register(*_: Any) -> Any:
    """Do nothing: in a pickle it stands for the function that registers a part of a new copy."""


class _Pickler(pickle.Pickler):
    """The walk through an object for a `Snapshot`; the arguments are the snapshot's.

    A persistent id is (table, index): "table" for what copies share, "bulk" for large arrays,
    "external" for the replacements, after `_register`.
    """

    def __init__(
        self, replacements: Iterable[Any], keep: Collection[str], share_uncopyable: bool
    ) -> None:
        self.file = io.BytesIO()
        super().__init__(self.file, protocol=5)
        self.bulk = BulkStore()
        self.table: list[Any] = []
        self.parts: list[Any] = []
        self.kinds: dict[type, None] = {}
        self.num_benchmarks_disabled = 0
        self._replaced: dict[int, int] = {}
        for index, original in enumerate((_register, *replacements)):
            self._replaced[id(original)] = index
        self._keep = keep
        self._share_uncopyable = share_uncopyable
        self._persistent_ids: dict[int, tuple[str, int]] = {}
        self._memories: dict[int, np.ndarray[Any, Any]] = {}

    def persistent_id(self, obj: Any) -> Any:
        kind = type(obj)
        # Replacements first: one may be an array or code, which would be stored or shared below.
        if id(obj) in self._replaced:
            return "external", self._replaced[id(obj)]
        if kind is np.ndarray:
            return self._id_of_array(obj)
        # Most objects are atoms, which need not go through the slower checks below.
        if kind in _ATOMS:
            return None
        if kind is SharedRef:
            return self._id_of_shared(obj.value)
        if _is_shared(obj):
            return self._id_of_shared(obj)
        return None

    def reducer_override(self, obj: Any) -> Any:
        self.kinds[type(obj)] = None
        try:
            return self._reduced(obj)
        except Exception as error:
            # Only this object's own reduction is tried here: its parts get calls of their own.
            if self._share_uncopyable:
                return SharedRef, (SharedRef(obj),)
            refusal = CannotCopy(error)
            refusal.value = obj
            raise refusal from error

    def _reduced(self, obj: Any) -> Any:
        kind = type(obj)
        reduced = NotImplemented
        if kind is torch.Tensor:
            reduced = reduce_tensor(obj, self._memories)
        elif kind in REDUCERS:
            reduced = REDUCERS[kind](obj)
        if reduced is NotImplemented:
            reduced = reduce_by_class(obj)
        if not isinstance(reduced, tuple):
            return reduced
        function, arguments, *rest = reduced
        names = carried_names(kind, self._keep)
        is_generator = reseeder_of(kind) is not None
        is_epoch_aware = callable(getattr(kind, "set_epoch", None))
        is_carrier = bool(names) and _has_any(obj, names)
        # Nobody looks up other objects in a copy, and registering one costs a call per copy.
        if not (is_generator or is_epoch_aware or is_carrier):
            if _chooses_by_the_clock(obj):
                self.num_benchmarks_disabled += 1
                rest[0] = {**rest[0], "benchmark": False}
            return (function, arguments, *rest)
        if rest and names:
            rest[0] = _without(rest[0], names)
        self.parts.append(obj)
        return (_register, (len(self.parts) - 1, function, *arguments), *rest)

    def _id_of_array(self, array: np.ndarray[Any, Any]) -> tuple[str, int] | None:
        """Return the id of a large array; None for an array that pickle copies."""
        if array.nbytes < BULK_BYTES or array.dtype.hasobject or not array.flags.forc:
            return None
        is_view = isinstance(array.base, np.ndarray)
        if is_view and REDUCERS[np.ndarray](array) is not NotImplemented:
            # It is copied as a view of its owner: otherwise the two would no longer share memory.
            return None
        if not array.flags.writeable and not is_view:
            return self._id_of_shared(array)
        return self._id_in("bulk", array, self.bulk.arrays)

    def _id_of_shared(self, value: Any) -> tuple[str, int]:
        return self._id_in("table", value, self.table)

    def _id_in(self, table: str, value: Any, values: list[Any]) -> tuple[str, int]:
        # By id: the tables keep the values alive, so no other object gets the same one.
        if id(value) not in self._persistent_ids:
            self._persistent_ids[id(value)] = (table, len(values))
            values.append(value)
        return self._persistent_ids[id(value)]


def _is_shared(value: Any) -> bool:
    """Return whether copies share an object: code, a standard stream, or a memory map."""
    if isinstance(value, BY_REFERENCE) or is_shared_function(value) or is_standard_stream(value):
        return True
    # Writing to a memory map changes the file, or fails: a copy would not change that.
    return isinstance(value, np.memmap) and not value.dtype.hasobject


def copied_in(
    value: Any,
    keep: Collection[str],
    replacements: Iterable[Any] = (),
    share_uncopyable: bool = False,
) -> list[Any]:
    """Return the objects that a snapshot with these arguments copies, and does not share."""
    pickler = _Pickler(replacements, keep, share_uncopyable)
    pickler.dump(value)
    memorized = [obj for _, obj in pickler.memo.copy().values()]
    return memorized + pickler.bulk.arrays


def _has_any(obj: Any, names: Collection[str]) -> bool:
    """Return whether an object has one of those attributes, or its class has it as a default."""
    attributes = attributes_of(obj) or ()
    for name in names:
        if name in attributes:
            return True
        default = getattr_static(type(obj), name, _ABSENT)
        if isinstance(default, types.MemberDescriptorType):
            return True
        # Methods, properties and other descriptors are no values of the object's own.
        if default is not _ABSENT and not hasattr(type(default), "__get__"):
            return True
    return False


def carried_names(kind: type, names: Collection[str]) -> frozenset[str]:
    """Return the attributes of a class that pass from copy to copy.

    Args:
        kind: the class, whose known caches are added.
        names: the user's own (``keep=``).
    """
    known = _known_caches_of(kind)
    return known.union(names) if names else known


@cache
def _known_caches_of(kind: type) -> frozenset[str]:
    names: set[str] = set()
    for base in kind.__mro__:
        names.update(_KNOWN_CACHES.get(f"{base.__module__}.{base.__qualname__}", ()))
    return frozenset(names)


def _without(state: Any, names: frozenset[str]) -> Any:
    """Return an object's state, as pickle has it, without those attributes."""
    if isinstance(state, dict):
        return {name: value for name, value in state.items() if name not in names}
    if not isinstance(state, tuple) or len(state) != 2:
        return state
    # Of an object with slots: (its ``__dict__``, its slots), each a dict or None.
    if not all(part is None or isinstance(part, dict) for part in state):
        return state
    return tuple(None if part is None else _without(part, names) for part in state)


def _chooses_by_the_clock(obj: Any) -> bool:
    """Return whether an object is a blur of batchgeneratorsv2's that times its algorithms.

    ``GaussianBlurTransform(benchmark=True)`` (nnU-Net's default) picks convolution or FFT by timing
    them, which gives other bytes from run to run; with ``benchmark=False`` it always convolves.
    """
    kind = type(obj)
    if kind.__name__ != "GaussianBlurTransform":
        return False
    if not kind.__module__.startswith("batchgeneratorsv2"):
        return False
    return bool(getattr(obj, "benchmark", False))
