"""A batch as a small pickle and separate large buffers: `pack` and `unpack`.

batch → `pack` → a pickle, and large buffers → a slot, or Ray's object store → `unpack` → batch

Pickle's protocol 5 hands large buffers out instead of writing them; `reduce_bulk` makes arrays and
tensors of every class do that. So a batch may be any picklable object, NumPy arrays come back as
such, tensors as tensors, and one object in two places of a batch is one object after `unpack`.

A fresh interpreter does not run the user's script; cloudpickle sends it the script's classes by
value. Sent back by value, a class would arrive as a second one, or overwrite the attributes of the
parent's own. So a function that came from the parent is sent back as a name, and a class, of whose
name cloudpickle sends only the last part, as cloudpickle's number for it.
"""

from __future__ import annotations

import pickle
import sys
import types
from collections.abc import Iterable
from typing import Any, NamedTuple

from cloudpickle import cloudpickle

from detaug.objects.frozen import dumped, why_not_picklable
from detaug.objects.tensor_pickling import reduce_bulk
from detaug.system.shared_memory import Bytes

#: Bytes. Smaller buffers are part of the pickle: each separate one costs an aligned offset and a
#: view.
_SMALL = 512
_SCRIPT = ("__main__", "__mp_main__")


class Packed(NamedTuple):
    """A batch that can be written: its pickle, and its buffers in the order of `unpack`."""

    pickled: bytes
    buffers: list[Bytes]


class _Pickler(pickle.Pickler):
    def reducer_override(self, obj: Any) -> Any:
        reduced = reduce_bulk(obj)
        if reduced is NotImplemented:
            return _reduce_by_name(obj)
        return reduced


def pack(batch: Any) -> Packed:
    """Return a batch as a small pickle and separate buffers.

    Raises:
        TypeError: a value cannot be pickled; the message names its key.
    """
    # The part that cannot be pickled is looked for only now: usually there is none.
    try:
        return Packed(*dumped(batch, _Pickler, _is_separate))
    except Exception as error:
        raise TypeError(
            f"the batch cannot be sent: {why_not_picklable(batch, 'batch', _Pickler)}"
        ) from error


def unpack(pickled: Any, buffers: Iterable[Any]) -> Any:
    """Return the batch; its arrays view the buffers, and are writable if those are."""
    return pickle.loads(pickled, buffers=buffers)


def _is_separate(raw: memoryview) -> bool:
    return raw.nbytes >= _SMALL and _is_owned(raw)


def _is_owned(view: memoryview) -> bool:
    """Return whether a view keeps its memory alive.

    Views of memory in compiled code (SimpleITK's images) do not: the memory ends with the batch.
    """
    owner: Any = view
    while isinstance(owner, memoryview):
        owner = owner.obj
    return owner is not None


def _reduce_by_name(obj: Any) -> Any:
    """Reduce a class or function that only the script has; NotImplemented for any other object."""
    if not isinstance(obj, (type, types.FunctionType)):
        return NotImplemented
    if obj.__module__ not in _SCRIPT or "<" in obj.__qualname__:
        return NotImplemented
    if _named(obj.__module__, obj.__qualname__) is obj:
        return NotImplemented
    class_number: Any = ""
    # cloudpickle has numbered the classes that it has sent here by value. Any other class is left
    # to pickle.
    if isinstance(obj, type):
        class_number = cloudpickle._DYNAMIC_CLASS_TRACKER_BY_CLASS.get(obj)
    if class_number is None:
        return NotImplemented
    return find_in_script, (obj.__module__, obj.__qualname__, class_number)


def find_in_script(module: str, qualname: str, number: str) -> Any:
    """Return the script's function of that name, or its class of that number.

    Args:
        module: the module's name.
        qualname: the qualified name in the module.
        number: cloudpickle's number of a class; "" for a function.

    Raises:
        AttributeError: the calling process does not have it.
    """
    value: Any
    if number:
        value = cloudpickle._DYNAMIC_CLASS_TRACKER_BY_ID.get(number)
    else:
        value = _named(module, qualname)
    if value is None or "<" in value.__qualname__:
        raise AttributeError(
            f"the batch holds {module}.{qualname}, which is defined in a function, or which the "
            "calling process no longer has: a class of the batch must exist there under that name "
            "for as long as the augmenter is used"
        )
    return value


def _named(module: str, qualname: str) -> Any:
    """Return the object of that name, or None."""
    if module == "__mp_main__" and module not in sys.modules:
        # Only multiprocessing gives the script this name.
        module = "__main__"
    value: Any = sys.modules.get(module)
    for part in qualname.split("."):
        value = getattr(value, part, None)
    return value
