"""A pipeline on its way to other interpreters: `freeze` and `Frozen.thaw`.

Objects that plain pickle refuses (lambdas, local classes) go through cloudpickle. Large arrays are set aside, so that all
workers of a machine can map the same memory. Copies within one process are made by `detaug.purity` instead: cloudpickle
would give the classes of a script other attributes.
"""

from __future__ import annotations

import io
import mmap
import pickle
import random
import sys
from collections.abc import Callable, Iterable
from typing import Any

import cloudpickle
import numpy as np
import torch

from detaug.transport.tensors import reduce_tensor

Array = np.ndarray[Any, Any]
Shared = Array | torch.Tensor

#: Smaller arrays travel with the rest.
_BULK_BYTES = 64 * 1024


class Frozen:
    """The pickled structure of an object, and the large arrays in it.

    Attributes:
        structure: a pickle that refers to the arrays by number.
        shared: the arrays and tensors.
    """

    def __init__(self, structure: bytes, shared: list[Shared]) -> None:
        self.structure = structure
        self.shared = shared

    def thaw(self) -> Any:
        """The object, with these very arrays in it."""
        return _Unpickler(io.BytesIO(self.structure), self.shared.__getitem__).load()


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
        if type(obj) is np.memmap and isinstance(obj.base, mmap.mmap) and obj.mode in ("r", "c") and obj.flags.forc:
            order = "C" if obj.flags.c_contiguous else "F"
            return np.memmap, (obj.filename, obj.dtype, obj.mode, obj.offset, obj.shape, order)
        if type(obj) is random.SystemRandom:  # the system's entropy has no state: `detaug verify` names who draws
            return random.SystemRandom, ()
        return super().reducer_override(obj)


def freeze(value: Any) -> Frozen:
    """Take `value` as it is now.

    Raises:
        TypeError, pickle.PicklingError, ...: whatever the object that cannot be pickled raises.
    """
    _send_the_script_by_value()
    shared: list[Shared] = []
    numbers: dict[int, int] = {}

    def set_aside(array: Shared) -> int | None:
        if array.nbytes < _BULK_BYTES:
            return None
        if not isinstance(array, np.ndarray):
            if type(array) is not torch.Tensor or array.device.type != "cpu" or array.requires_grad:
                return None
        elif array.dtype.hasobject or type(array) is not np.ndarray:
            return None
        if id(array) not in numbers:
            numbers[id(array)] = len(shared)
            shared.append(array)
        return numbers[id(array)]

    file = io.BytesIO()
    _Pickler(file, set_aside).dump(value)
    return Frozen(file.getvalue(), shared)


def number_local_classes(classes: Iterable[type]) -> None:
    """Have cloudpickle know classes that functions define, so that their instances and exceptions that come back from
    forked workers are of the very same classes."""
    for each in classes:
        if "<locals>" in each.__qualname__:
            cloudpickle.cloudpickle._get_or_create_tracker_id(each)


def _send_the_script_by_value() -> None:
    """In a process that multiprocessing started, the user's script is called ``__mp_main__``, and no other interpreter
    can import it under that name; as ``__main__`` cloudpickle sends it by value by itself."""
    script = sys.modules.get("__mp_main__")
    if script is not None and script.__name__ not in cloudpickle.list_registry_pickle_by_value():
        cloudpickle.register_pickle_by_value(script)


def _pickling_error(value: Any) -> Exception | None:
    try:
        _Pickler(io.BytesIO(), lambda _: None).dump(value)
    except Exception as error:
        return error
    return None


def why_not_picklable(value: Any, path: str, error_of: Callable[[Any], Exception | None] = _pickling_error) -> str:
    """The deepest attribute or item of `value` that cannot be pickled, and why (`error_of`), in one sentence."""
    error = error_of(value)
    for _ in range(8):
        for name, part in _parts(value):
            part_error = error_of(part)
            if part_error is not None:
                path, value, error = path + name, part, part_error
                break
        else:
            break
    return f"{path} of type {type(value).__name__} cannot be pickled: {error}"


def _parts(value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        return [(f"[{key!r}]", part) for key, part in value.items()]
    if isinstance(value, (list, tuple)):
        return [(f"[{i}]", part) for i, part in enumerate(value)]
    attributes = getattr(value, "__dict__", None)
    return [(f".{name}", part) for name, part in attributes.items()] if isinstance(attributes, dict) else []
