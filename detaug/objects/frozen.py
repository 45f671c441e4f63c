"""A pipeline on its way to other interpreters: `freeze`, `Frozen.thaw`, and the block of memory
between them.

Objects that plain pickle refuses (lambdas, local classes) go through cloudpickle. The bytes of
large arrays and tensors travel beside the pickle, in one block of shared memory, which all workers
map privately: they are there once, and what a worker writes stays with it. Copies within one
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

#: Smaller arrays (bytes) travel in the pickle.
_BULK_BYTES = 64 * 1024


class Frozen(NamedTuple):
    """A pickled object: the pickle, and the bytes of the large arrays in it, in their order."""

    structure: bytes
    buffers: list[Bytes]

    @property
    def nbytes(self) -> int:
        """Of all of it."""
        return len(self.structure) + sum(each.nbytes for each in self.buffers)

    def thaw(self) -> Any:
        """The object; its large arrays view the buffers."""
        return pickle.loads(self.structure, buffers=self.buffers)


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    def reducer_override(self, obj: Any) -> Any:
        kind = type(obj)
        if kind is torch.Tensor:
            reduced = reduce_tensor(obj)
            if reduced is not NotImplemented:
                return reduced
        if kind is np.ndarray and not (obj.dtype.hasobject or obj.flags.forc):
            # numpy would write a strided array into the pickle itself
            return np.ascontiguousarray(obj).__reduce_ex__(5)
        if (
            kind is np.memmap
            and isinstance(obj.base, mmap.mmap)
            and obj.mode in ("r", "c")
            and obj.flags.forc
        ):
            order = "C" if obj.flags.c_contiguous else "F"
            return np.memmap, (obj.filename, obj.dtype, obj.mode, obj.offset, obj.shape, order)
        if (
            kind is random.SystemRandom
        ):  # the system's entropy has no state: `detaug verify` names who draws
            return random.SystemRandom, ()
        return super().reducer_override(obj)


def freeze(value: Any) -> Frozen:
    """Take `value` as it is now; what its large arrays hold may change until it is written. An
    object that cannot be pickled raises what it likes.
    """
    _send_the_script_by_value()
    return Frozen(*dumped(value, _Pickler, lambda raw: raw.nbytes >= _BULK_BYTES))


def dumped(
    value: Any, pickler: type[pickle.Pickler], goes_beside: Callable[[memoryview], bool]
) -> tuple[bytes, list[Bytes]]:
    """The pickle of `value`, and those of its buffers that go beside it."""
    buffers: list[Bytes] = []

    def keep_in_pickle(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if goes_beside(raw):
            buffers.append(np.frombuffer(raw, dtype=np.uint8))
            return False
        return True

    file = io.BytesIO()
    pickler(file, protocol=5, buffer_callback=keep_in_pickle).dump(value)
    return file.getvalue(), buffers


def write_payload(frozen: Frozen, job: Any) -> int:
    """A descriptor of a block that holds it all, and what is to be done with it."""
    head = pickle.dumps(
        (frozen.structure, [each.nbytes for each in frozen.buffers], job), protocol=5
    )
    return write_block([np.frombuffer(head, np.uint8), *frozen.buffers])[0]


def read_payload(descriptor: int) -> tuple[Frozen, Any]:
    """What `write_payload` wrote. The arrays are private to this process; the descriptor stays
    open, for copies of them map the block again.
    """
    block = CopyOnWriteBlock(descriptor).bytes()
    structure, sizes, job = pickle.loads(block.data)  # which reads no further than the pickle goes
    offsets, size_of_all = pack_offsets(sizes)
    arrays = block[block.nbytes - size_of_all :]
    return Frozen(
        structure, [arrays[at : at + size] for at, size in zip(offsets, sizes, strict=True)]
    ), job


def _send_the_script_by_value() -> None:
    """In a process that multiprocessing started, the user's script is called ``__mp_main__``, and
    no other interpreter can import it under that name; as ``__main__`` cloudpickle sends it by
    value by itself.
    """
    script = sys.modules.get("__mp_main__")
    if script is not None and script.__name__ not in cloudpickle.list_registry_pickle_by_value():
        cloudpickle.register_pickle_by_value(script)


def why_not_picklable(value: Any, path: str, pickler: type[pickle.Pickler] = _Pickler) -> str:
    """The deepest attribute or item of `value` that cannot be pickled, and why, in one sentence."""

    def error_of(part: Any) -> Exception | None:
        try:
            pickler(io.BytesIO(), protocol=5, buffer_callback=lambda _: False).dump(part)
        except Exception as error:
            return error
        return None

    error = error_of(value)
    for _ in range(8):
        for name, part in parts_of(value):
            part_error = error_of(part)
            if part_error is not None:
                path, value, error = path + name, part, part_error
                break
        else:
            break
    return f"{path} of type {type(value).__name__} cannot be pickled: {error}"
