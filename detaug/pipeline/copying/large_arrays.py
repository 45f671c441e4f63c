"""Large arrays of a pipeline: stored once, and private memory to every copy.

The arrays lie in one block of anonymous shared memory. A copy maps the block privately: what it
writes stays with it (copy on write), so that no copy can change another one's data, nor the user's
arrays, and only written pages use memory. Windows has no such memory: every copy has arrays of its
own there.
"""

from __future__ import annotations

import os
import weakref
from typing import Any

import numpy as np

from detaug.system.platform import HAS_WORKERS
from detaug.system.shared_memory import CopyOnWriteBlock, write_block

Array = np.ndarray[Any, Any]

#: Smaller arrays (bytes) are simply copied.
BULK_BYTES = 64 * 1024
#: Where a pipeline's large arrays are more than this in all (bytes), they are not written to a
#: block, which would double them: copies share them read-only, and a write raises.
MOST_BYTES = 2**30


class BulkStore:
    """`arrays` that own their memory, and views of them for copies."""

    def __init__(self) -> None:
        self.arrays: list[Array] = []
        self._block: int | None = None  # its descriptor
        self._contents: list[Array] | None = None  # where there are no blocks
        self._offsets: tuple[int, ...] = ()

    def seal(self, is_untouched: bool = False) -> None:
        """Take the arrays' contents as they are now.

        Args:
            is_untouched: nothing has been written to arrays that lie in such a block (those of a
                worker that was executed): the block is mapped again and not copied.
        """
        if not HAS_WORKERS:
            self._contents = [array.copy("K") for array in self.arrays]
            return
        arrays = self.arrays
        sources = {_mapped(array) for array in arrays} if is_untouched else set()
        if len(sources) == 1 and (source := sources.pop()) is not None:
            self._block = source.descriptor
            self._offsets = tuple(array.ctypes.data - source.address for array in arrays)
            return
        sizes = [array.nbytes for array in arrays]
        if not arrays or sum(sizes) > MOST_BYTES:
            return
        self._block, self._offsets = write_block(
            [array.ravel("A").view(np.uint8) for array in arrays]
        )
        weakref.finalize(self, _close, os.getpid(), self._block)

    def views(self, only_one: bool = False) -> list[Array]:
        """One view for each array, of private memory; `only_one`: no other copy in this process has
        views, so that arrays above `MOST_BYTES` are returned themselves.
        """
        if self._contents is not None:
            return [array.copy("K") for array in self._contents]
        if self._block is None:
            views = self.arrays if only_one else [array.view() for array in self.arrays]
            if not only_one:
                for view in views:
                    view.flags.writeable = False
            return views
        block = CopyOnWriteBlock(self._block).bytes()
        return [
            np.ndarray(array.shape, array.dtype, block, offset, array.strides)
            for array, offset in zip(self.arrays, self._offsets, strict=True)
        ]


def _mapped(array: Array) -> CopyOnWriteBlock | None:
    """The private block that an array lies in, if it is one, and can be mapped again."""
    owner: Any = array
    while isinstance(owner, np.ndarray):
        owner = owner.base
    return owner if isinstance(owner, CopyOnWriteBlock) else None


def _close(pid: int, descriptor: int) -> None:
    if os.getpid() == pid:
        os.close(descriptor)
