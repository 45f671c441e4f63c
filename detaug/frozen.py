"""A pipeline as it was handed in, from which pristine copies are made: `freeze` and `Frozen.thaw`.

Objects that plain pickle refuses (lambdas, local classes) go through cloudpickle. Bulk arrays are set aside and shared
by reference instead of being copied with the rest.
"""

from __future__ import annotations

import io
import pickle
import random
import sys
from collections.abc import Callable
from typing import Any

import cloudpickle
import numpy as np
import torch

from detaug.tensors import reduce_tensor

Array = np.ndarray[Any, Any]
Shared = Array | torch.Tensor

#: Smaller arrays are simply copied.
_BULK_BYTES = 64 * 1024


class Frozen:
    """The pickled structure of an object, and the bulk arrays that all its copies share.

    Attributes:
        structure: a pickle that refers to the shared arrays by number.
        shared: the arrays and tensors. In copies arrays are read-only where `protect` says so.
    """

    def __init__(self, structure: bytes, shared: list[Shared], protect: bool) -> None:
        self.structure = structure
        self.shared = shared
        self.protect = protect

    def thaw(self) -> Any:
        """A copy that shares nothing with the original but the bulk arrays."""
        return _Unpickler(io.BytesIO(self.structure), self._view).load()

    def _view(self, number: int) -> Shared:
        array = self.shared[number]
        if self.protect and isinstance(array, np.ndarray) and array.flags.writeable:
            array = array.view()
            array.flags.writeable = False
        return array


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, view: Callable[[int], Shared]) -> None:
        super().__init__(file)
        self._view = view

    def persistent_load(self, pid: Any) -> Shared:
        return self._view(pid)


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    def __init__(self, file: io.BytesIO, set_aside: Callable[[Any], int | None]) -> None:
        super().__init__(file, protocol=5)
        self._set_aside = set_aside

    def persistent_id(self, obj: Any) -> int | None:
        return self._set_aside(obj) if isinstance(obj, (np.ndarray, torch.Tensor)) else None

    def reducer_override(self, obj: Any) -> Any:
        if type(obj) is torch.Tensor:
            reduced = reduce_tensor(obj)
            if reduced is not NotImplemented:
                return reduced
        if type(obj) is random.SystemRandom:  # the system's entropy has no state: `detaug verify` names who draws
            return random.SystemRandom, ()
        return super().reducer_override(obj)


class _Survey:
    """First pass: which arrays there are, how often, and which of them overlap in memory."""

    def __init__(self) -> None:
        self.arrays: dict[int, Array] = {}
        self.times: dict[int, int] = {}
        self.tensors: set[int] = set()

    def __call__(self, array: Array | torch.Tensor) -> int | None:
        key = id(array)
        if isinstance(array, torch.Tensor):
            self.tensors.add(key)
            return 0
        self.times[key] = self.times.get(key, 0) + 1
        self.arrays[key] = array
        # Bulk is not worth writing out in a pass that only looks; object arrays must be, to see what they hold.
        return 0 if not array.dtype.hasobject else None

    def unaliased(self) -> set[int]:
        """Arrays that occur once and share no memory with another array of the object."""
        spans = sorted((*_memory_span(array), key) for key, array in self.arrays.items() if array.nbytes)
        alone = {key for key, count in self.times.items() if count == 1}
        reached, owner = -1, -1
        for start, end, key in spans:
            if start < reached:
                alone.discard(key)
                alone.discard(owner)
            if end > reached:
                reached, owner = end, key
        return alone


def _memory_span(array: Array) -> tuple[int, int]:
    if hasattr(np.lib, "array_utils"):
        start, end = np.lib.array_utils.byte_bounds(array)
    else:  # NumPy 1
        start, end = np.byte_bounds(array)  # type: ignore[attr-defined,unused-ignore]  # noqa: NPY201
    return int(start), int(end)


def freeze(value: Any, *, protect: bool, bulk_in: tuple[Any, ...] = ()) -> Frozen:
    """Take `value` as it is now.

    Args:
        value: any object that cloudpickle can write.
        protect: copies live side by side in one process (streams), so an array is shared only if it cannot be written
            to: it already is read-only, or it belongs to `bulk_in` and nothing else in the object aliases it (it is
            then made read-only). Otherwise every large array is shared.
        bulk_in: the loader's declared data (batchgenerators' ``_data``).

    Raises:
        TypeError, pickle.PicklingError, ...: whatever the object that cannot be pickled raises.
    """
    _send_the_script_by_value()
    survey = _Survey()
    _Pickler(io.BytesIO(), survey).dump(value)
    if protect:
        alone = survey.unaliased()
        declared = {id(array) for array in _arrays_in(bulk_in)}
        sharable = {
            key
            for key, array in survey.arrays.items()
            if key in alone and (key in declared or not array.flags.writeable)
        }
    else:
        sharable = set(survey.arrays) | survey.tensors

    shared: list[Shared] = []
    numbers: dict[int, int] = {}

    def set_aside(array: Shared) -> int | None:
        if id(array) not in sharable or array.nbytes < _BULK_BYTES:
            return None
        if not isinstance(array, np.ndarray):
            if type(array) is not torch.Tensor or array.device.type != "cpu" or array.requires_grad:
                return None
        elif array.dtype.hasobject:
            return None
        if id(array) not in numbers:
            numbers[id(array)] = len(shared)
            shared.append(array)
        return numbers[id(array)]

    file = io.BytesIO()
    _Pickler(file, set_aside).dump(value)
    return Frozen(file.getvalue(), shared, protect)


def _send_the_script_by_value() -> None:
    """In a process that multiprocessing started, the user's script is called ``__mp_main__``, and no other interpreter
    can import it under that name; as ``__main__`` cloudpickle sends it by value by itself."""
    script = sys.modules.get("__mp_main__")
    if script is not None and script.__name__ not in cloudpickle.list_registry_pickle_by_value():
        cloudpickle.register_pickle_by_value(script)


def _arrays_in(values: Any, depth: int = 3) -> list[Array]:
    """The arrays in nested lists, tuples and dictionaries."""
    if isinstance(values, np.ndarray):
        return [values]
    if depth == 0:
        return []
    if isinstance(values, dict):
        values = list(values.values())
    if isinstance(values, (list, tuple)):
        return [array for value in values for array in _arrays_in(value, depth - 1)]
    return []


def why_not_picklable(value: Any, path: str) -> str:
    """The deepest attribute or item of `value` that cannot be pickled, and why, in one sentence."""
    error: BaseException | None = _pickling_error(value)
    for _ in range(8):
        for name, part in _parts(value):
            part_error = _pickling_error(part)
            if part_error is not None:
                path, value, error = path + name, part, part_error
                break
        else:
            break
    return f"{path} (of type {type(value).__name__}) cannot be pickled: {error}"


def _parts(value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        return [(f"[{key!r}]", part) for key, part in value.items()]
    if isinstance(value, (list, tuple)):
        return [(f"[{i}]", part) for i, part in enumerate(value)]
    attributes = getattr(value, "__dict__", None)
    return [(f".{name}", part) for name, part in attributes.items()] if isinstance(attributes, dict) else []


def _pickling_error(value: Any) -> BaseException | None:
    try:
        _Pickler(io.BytesIO(), _Survey()).dump(value)
    except Exception as error:
        return error
    return None
