"""Pipelines that are sent to other interpreters: `freeze`, `Frozen.thaw`, and shared memory.

pipeline → `freeze` → a pickle, and large buffers → `write_payload` → a block's descriptor
    → in another interpreter: `read_payload` → buffers that are mapped privately → `Frozen.thaw`

Objects that plain pickle refuses (lambdas, local classes) go through cloudpickle. The bytes of
large arrays and tensors are not in the pickle, but in one block of shared memory, which all workers
map privately: they are stored once, and what a worker writes stays with it. Copies within one
process are made by `detaug.pipeline.copying` instead: cloudpickle would give the classes of a
script other attributes.
"""

from __future__ import annotations

import io
import mmap
import pickle
import random
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import cloudpickle
import numpy as np
import torch

from detaug.objects.tensor_pickling import reduce_tensor
from detaug.objects.walking import parts_of
from detaug.system.shared_memory import Bytes, CopyOnWriteBlock, pack_offsets, write_block

#: Smaller arrays (bytes) are part of the pickle.
_BULK_BYTES = 64 * 1024


class Frozen(NamedTuple):
    """A pickled object: the pickle, and the bytes of the large arrays in it, in their order."""

    structure: bytes
    buffers: list[Bytes]

    @property
    def nbytes(self) -> int:
        """The size of the pickle and the buffers, in bytes."""
        return len(self.structure) + sum(buffer.nbytes for buffer in self.buffers)

    def thaw(self) -> Any:
        """Return the object; its large arrays view the buffers."""
        return pickle.loads(self.structure, buffers=self.buffers)


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    def reducer_override(self, obj: Any) -> Any:
        kind = type(obj)
        if kind is torch.Tensor:
            reduced = reduce_tensor(obj)
            if reduced is not NotImplemented:
                return reduced
        if kind is np.ndarray and not (obj.dtype.hasobject or obj.flags.forc):
            # NumPy would write a strided array into the pickle itself.
            return np.ascontiguousarray(obj).__reduce_ex__(5)
        if kind is np.memmap and _is_reopenable(obj):
            # The file's name is enough: workers can read the file, which may be very large.
            order = "C" if obj.flags.c_contiguous else "F"
            arguments = (obj.filename, obj.dtype, obj.mode, obj.offset, obj.shape, order)
            return np.memmap, arguments
        if kind is random.SystemRandom:
            # The system's entropy has no state: `detaug verify` names who draws.
            return random.SystemRandom, ()
        return super().reducer_override(obj)


def _is_reopenable(array: np.memmap[Any, Any]) -> bool:
    """Return whether an array is a memory map itself, and no view, that does not write its file."""
    is_whole_map = isinstance(array.base, mmap.mmap)
    return is_whole_map and array.mode in ("r", "c") and array.flags.forc


def freeze(value: Any) -> Frozen:
    """Return a value as it is now; its large arrays may change until they are written.

    An object that cannot be pickled raises any exception.
    """
    _send_the_script_by_value()
    return Frozen(*dumped(value, _Pickler, _is_large))


def _is_large(raw: memoryview) -> bool:
    return raw.nbytes >= _BULK_BYTES


def dumped(
    value: Any, pickler: type[pickle.Pickler], is_separate: Callable[[memoryview], bool]
) -> tuple[bytes, list[Bytes]]:
    """Return the pickle of a value, and the buffers that are not part of it.

    Args:
        value: the value.
        pickler: the class that pickles it.
        is_separate: returns whether a buffer is left out of the pickle.
    """
    buffers: list[Bytes] = []

    def keep_in_pickle(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if is_separate(raw):
            buffers.append(np.frombuffer(raw, dtype=np.uint8))
            return False
        return True

    file = io.BytesIO()
    pickler(file, protocol=5, buffer_callback=keep_in_pickle).dump(value)
    return file.getvalue(), buffers


def write_payload(frozen: Frozen, extra: Any) -> int:
    """Write a frozen pipeline and an object into a block, and return its descriptor."""
    # The sizes come first in the block: `read_payload` cannot know otherwise where buffers begin.
    sizes = [buffer.nbytes for buffer in frozen.buffers]
    head = pickle.dumps((frozen.structure, sizes, extra), protocol=5)
    parts = [np.frombuffer(head, np.uint8), *frozen.buffers]
    descriptor, _ = write_block(parts)
    return descriptor


def read_payload(descriptor: int) -> tuple[Frozen, Any]:
    """Return the pipeline and the object that `write_payload` wrote.

    The arrays are private to this process. The descriptor stays open: copies of the arrays map the
    block again.
    """
    block = CopyOnWriteBlock(descriptor).bytes()
    # The pickle ends before the buffers do: `loads` reads no further than its last opcode.
    structure, sizes, extra = pickle.loads(block.data)
    offsets, total_size = pack_offsets(sizes)
    contents = block[block.nbytes - total_size :]
    buffers = []
    for offset, size in zip(offsets, sizes, strict=True):
        buffers.append(contents[offset : offset + size])
    return Frozen(structure, buffers), extra


def _send_the_script_by_value() -> None:
    """Have cloudpickle send the classes of the user's script by value.

    In a process that multiprocessing started, the script is called ``__mp_main__``, and no other
    interpreter can import it under that name; the classes of ``__main__`` cloudpickle sends by
    value anyway.
    """
    script = sys.modules.get("__mp_main__")
    if script is not None and script.__name__ not in cloudpickle.list_registry_pickle_by_value():
        cloudpickle.register_pickle_by_value(script)


def why_not_picklable(value: Any, path: str, pickler: type[pickle.Pickler] = _Pickler) -> str:
    """Return a sentence about the deepest part of a value that cannot be pickled.

    Args:
        value: a value that cannot be pickled.
        path: its path, for the message.
        pickler: the class that pickles it.
    """
    error = _pickling_error(value, pickler)
    # Deep enough to name the user's attribute; each level pickles all parts of the one above again.
    for _ in range(8):
        deeper = _first_unpicklable_part(value, pickler)
        if deeper is None:
            break
        label, value, error = deeper
        path += label
    return f"{path} of type {type(value).__name__} cannot be pickled: {error}"


def _first_unpicklable_part(
    value: Any, pickler: type[pickle.Pickler]
) -> tuple[str, Any, Exception] | None:
    for label, part in parts_of(value):
        error = _pickling_error(part, pickler)
        if error is not None:
            return label, part, error
    return None


def _pickling_error(value: Any, pickler: type[pickle.Pickler]) -> Exception | None:
    try:
        pickler(io.BytesIO(), protocol=5, buffer_callback=_leave_out).dump(value)
    except Exception as error:
        return error
    return None


def _leave_out(_: pickle.PickleBuffer) -> bool:
    return False
