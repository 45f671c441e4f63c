"""A batch as a small pickle and the large buffers beside it: `pack` and `unpack`.

Pickle's protocol 5 hands large buffers out instead of writing them; `reduce_bulk` makes arrays and
tensors of every class do that. So a batch may be any picklable object, numpy comes back as numpy,
tensors as tensors, and the same object twice in a batch is the same object twice on the other side.

A fresh interpreter does not run the user's script; cloudpickle sends it the script's classes by
value. Sent back by value, a class would come in as a second one, or overwrite the attributes of the
parent's own. So what came from the parent goes back as a name, and a class, of whose name
cloudpickle sends the last part alone, as the number that it has for cloudpickle.
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

#: Buffers below this size (bytes) travel in the pickle.
_SMALL = 512
_SCRIPT = ("__main__", "__mp_main__")


class Packed(NamedTuple):
    """A batch, ready to be written: its structure, and its large parts in the order in which
    `unpack` wants them.
    """

    pickled: bytes
    buffers: list[Bytes]


class _Pickler(pickle.Pickler):
    def reducer_override(self, obj: Any) -> Any:
        reduced = reduce_bulk(obj)
        return reduced if reduced is not NotImplemented else _reduce_by_name(obj)


def pack(batch: Any) -> Packed:
    """Take a batch apart. What cannot be pickled is a TypeError that names the key."""
    try:
        return Packed(*dumped(batch, _Pickler, lambda raw: raw.nbytes >= _SMALL and _is_owned(raw)))
    except Exception as error:
        raise TypeError(
            f"the batch cannot be sent: {why_not_picklable(batch, 'batch', _Pickler)}"
        ) from error


def unpack(pickled: Any, buffers: Iterable[Any]) -> Any:
    """Put a batch together again. Its arrays view `buffers` and are writable where those are."""
    return pickle.loads(pickled, buffers=buffers)


def _is_owned(view: memoryview) -> bool:
    """Whether it keeps its memory. Views of memory in compiled code (SimpleITK's images) do not: it
    ends with the batch.
    """
    owner: Any = view
    while isinstance(owner, memoryview):
        owner = owner.obj
    return owner is not None


def _reduce_by_name(obj: Any) -> Any:
    """What pickle is to write for a class or function that only the script has, else
    NotImplemented.
    """
    if (
        not isinstance(obj, (type, types.FunctionType))
        or obj.__module__ not in _SCRIPT
        or "<" in obj.__qualname__
    ):
        return NotImplemented
    if _named(obj.__module__, obj.__qualname__) is obj:
        return NotImplemented
    number = cloudpickle._DYNAMIC_CLASS_TRACKER_BY_CLASS.get(obj) if isinstance(obj, type) else ""
    return (
        NotImplemented
        if number is None
        else (find_in_script, (obj.__module__, obj.__qualname__, number))
    )


def find_in_script(module: str, qualname: str, number: str) -> Any:
    """The script's function of that name, or its class of that number."""
    found = (
        cloudpickle._DYNAMIC_CLASS_TRACKER_BY_ID.get(number) if number else _named(module, qualname)
    )
    if found is None or "<" in found.__qualname__:
        raise AttributeError(
            f"the batch holds {module}.{qualname}, which is defined in a function, or which the "
            "calling process no longer has: a "
            "class of the batch must exist there under that name for as long as the augmenter is "
            "used"
        )
    return found


def _named(module: str, qualname: str) -> Any:
    """What stands under the name; the script's is ``__main__`` where multiprocessing has not
    renamed it.
    """
    found: Any = sys.modules.get(
        "__main__" if module == "__mp_main__" and module not in sys.modules else module
    )
    for part in qualname.split("."):
        found = getattr(found, part, None)
    return found
