"""`Snapshot`: an object as it is now, from which equal copies are made within this process and
those forked from it.

Everything that can change is copied, whatever container or class it is in: pickle walks through the
object, and so meets all of it. Classes, modules and functions without their own variables are
shared (`detaug.pipeline.copying.reducers`), so a copy is an instance of the very same classes;
large arrays are mapped copy-on-write (`detaug.pipeline.copying.large_arrays`).

On its way through the object the pickler notes what has to be told or reseeded in each copy.
"""

from __future__ import annotations

import io
import pickle
import types
from collections.abc import Callable, Collection, Iterable
from functools import cache
from itertools import chain
from typing import Any

import numpy as np
import torch

from detaug.objects.walking import attributes_of
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
from detaug.system.processes import is_standard_stream

#: By class: attributes that hold what can be computed again from the object's arguments, and of
#: which only copies are used. batchgeneratorsv2 keeps a grid of coordinates by patch size (24 MB at
#: nnU-Net's usual one, 70 ms to make).
_KNOWN_CACHES = {"batchgeneratorsv2.transforms.spatial.spatial.SpatialTransform": ("_grid_cache",)}
_ATOMS = frozenset(
    {str, bytes, int, float, complex, bool, type(None), tuple, dict, list, set, frozenset}
)


class CannotCopy(TypeError):
    """Something in a pipeline cannot be copied: `value`."""

    value: Any = None


class Snapshot:
    """An object as it is now.

    Args:
        external: objects that copies share with what `copy` is given instead, in this order.
        keep: names of attributes that are left out of the copies.
        passes_by: what cannot be copied is shared, for no copy is made.
        is_untouched: the object is as it was passed, so that nothing has been written to its
            arrays.
    """

    def __init__(
        self,
        value: Any,
        *,
        external: Iterable[Any] = (),
        keep: Collection[str] = (),
        passes_by: bool = False,
        is_untouched: bool = False,
    ) -> None:
        pickler = _Pickler(external, keep, passes_by)
        pickler.dump(value)
        self._pickled = pickler.file.getvalue()
        self._table: list[Any] = pickler.table
        #: The parts that were noted: generators, what has a seeding protocol, ``set_epoch``, or
        #: attributes in `keep`.
        self.originals: list[Any] = pickler.parts
        #: The classes of all instances that were met, and classes, modules and functions that
        #: copies share.
        self.kinds: list[type] = list(pickler.kinds)
        self.references: list[Any] = [
            each for each in pickler.table if not isinstance(each, (dict, np.ndarray))
        ]
        #: How many objects had a known dependence on the clock switched off.
        self.settled = pickler.settled
        self._bulk = pickler.bulk
        self._bulk.seal(is_untouched)

    def copy(
        self, external: Iterable[Any] = (), *, only_one: bool = False
    ) -> tuple[Any, list[Any]]:
        """An equal object that shares nothing that can change with the original or with another
        copy, and its parts in the order of `originals`; None for what its construction left out.

        Args:
            external: takes the place of the template's own.
            only_one: the process has no other copy and does not use the original: large arrays are
                passed without a copy.
        """
        parts: list[Any] = [None] * len(self.originals)

        def note(number: int, function: Callable[..., Any], *arguments: Any) -> Any:
            made = parts[number] = function(*arguments)
            return made

        objects = {
            "table": self._table,
            "external": (note, *external),
            "bulk": self._bulk.views(only_one),
        }
        unpickler = pickle.Unpickler(io.BytesIO(self._pickled))
        unpickler.persistent_load = lambda pid: objects[pid[0]][pid[1]]  # type: ignore[method-assign]
        return unpickler.load(), parts


def _note(*_: Any) -> Any:
    """Stands in a pickle for what makes an object and puts it among the parts of the copy that is
    being made.
    """


class _Pickler(pickle.Pickler):
    def __init__(self, external: Iterable[Any], keep: Collection[str], passes_by: bool) -> None:
        self.file = io.BytesIO()
        super().__init__(self.file, protocol=5)
        self.bulk = BulkStore()
        self.table: list[Any] = []
        self.parts: list[Any] = []
        self.kinds: dict[type, None] = {}
        self.settled = 0
        self._external = {id(each): number for number, each in enumerate((_note, *external))}
        self._keep = keep
        self._passes_by = passes_by
        self._numbers: dict[int, Any] = {}
        self._memories: dict[int, np.ndarray[Any, Any]] = {}

    def persistent_id(self, obj: Any) -> Any:
        kind = type(obj)
        if id(obj) in self._external:
            return "external", self._external[id(obj)]
        if kind is np.ndarray:
            return self._bulk_number(obj)
        if kind in _ATOMS:
            return None
        if kind is SharedRef:
            return self._reference(obj.value)
        # What is written to a memory map goes to the file, or nowhere.
        is_map = isinstance(obj, np.memmap) and not obj.dtype.hasobject
        if (
            is_map
            or isinstance(obj, BY_REFERENCE)
            or is_shared_function(obj)
            or is_standard_stream(obj)
        ):
            return self._reference(obj)
        return None

    def reducer_override(self, obj: Any) -> Any:
        self.kinds[type(obj)] = None
        try:
            return self._reduced(obj)
        except Exception as error:
            if self._passes_by:
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
        keep = kept_of(kind, self._keep)
        is_noted = reseeder_of(kind) is not None or callable(getattr(kind, "set_epoch", None))
        if not is_noted and not (keep and _has_any(obj, keep)):
            if _chooses_by_the_clock(obj):
                self.settled += 1
                rest[0] = {**rest[0], "benchmark": False}
            return (function, arguments, *rest)
        if rest and keep:
            rest[0] = _without(rest[0], keep)
        self.parts.append(obj)
        return (_note, (len(self.parts) - 1, function, *arguments), *rest)

    def _bulk_number(self, array: np.ndarray[Any, Any]) -> Any:
        if array.nbytes < BULK_BYTES or array.dtype.hasobject or not array.flags.forc:
            return None
        if isinstance(array.base, np.ndarray) and REDUCERS[np.ndarray](array) is not NotImplemented:
            return None  # it is copied as a view of its owner
        if not array.flags.writeable and not isinstance(array.base, np.ndarray):
            return self._reference(array)
        return self._number("bulk", array, self.bulk.arrays)

    def _reference(self, value: Any) -> Any:
        return self._number("table", value, self.table)

    def _number(self, kind: str, value: Any, values: list[Any]) -> Any:
        if id(value) not in self._numbers:
            self._numbers[id(value)] = kind, len(values)
            values.append(value)
        return self._numbers[id(value)]


def copied_in(
    value: Any, keep: Collection[str], external: Iterable[Any] = (), passes_by: bool = False
) -> list[Any]:
    """The objects of which every copy has its own, of a template with these arguments."""
    pickler = _Pickler(external, keep, passes_by)
    pickler.dump(value)
    return [*(each for _, each in pickler.memo.copy().values()), *pickler.bulk.arrays]


def _has_any(obj: Any, names: Collection[str]) -> bool:
    """Whether an object has one of those attributes, in its ``__dict__`` or in slots."""
    attributes = attributes_of(obj) or ()
    return any(
        name in attributes or isinstance(getattr(type(obj), name, None), types.MemberDescriptorType)
        for name in names
    )


def kept_of(kind: type, names: Collection[str]) -> frozenset[str]:
    """The names that are kept of objects of that class: the user's, and its known caches."""
    known = _known_of(kind)
    return known.union(names) if names else known


@cache
def _known_of(kind: type) -> frozenset[str]:
    names = (
        _KNOWN_CACHES.get(f"{base.__module__}.{base.__qualname__}", ()) for base in kind.__mro__
    )
    return frozenset(chain.from_iterable(names))


def _without(state: Any, names: frozenset[str]) -> Any:
    """An object's state but for those attributes."""
    if isinstance(state, dict):
        return {name: value for name, value in state.items() if name not in names}
    if (
        isinstance(state, tuple)
        and len(state) == 2
        and all(part is None or isinstance(part, dict) for part in state)
    ):
        return tuple(None if part is None else _without(part, names) for part in state)
    return state


def _chooses_by_the_clock(obj: Any) -> bool:
    """batchgeneratorsv2's ``GaussianBlurTransform(benchmark=True)`` (nnU-Net's default) picks
    convolution or FFT by timing them, which gives other bytes from run to run; with
    ``benchmark=False`` it always convolves.
    """
    kind = type(obj)
    is_blur = kind.__name__ == "GaussianBlurTransform" and kind.__module__.startswith(
        "batchgeneratorsv2"
    )
    return bool(is_blur and getattr(obj, "benchmark", False))
