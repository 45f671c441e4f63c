"""Large arrays of a pipeline: stored once, and private memory to every copy.

The arrays lie in one block of anonymous shared memory. A copy maps the block privately: what it
writes stays with it (copy on write), so that no copy can change another one's data, nor the user's
arrays, and only written pages use memory. Windows has no such memory: there every copy has arrays
of its own.
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
#: If a pipeline's large arrays are more than this in all (bytes), they are not written to a block,
#: which would double them: copies share them read-only, and a write raises.
MOST_BYTES = 2**30


class BulkStore:
    """Arrays that own their memory (`arrays`), and views of them for copies."""

    def __init__(self) -> None:
        self.arrays: list[Array] = []
        #: The block's descriptor.
        self._block: int | None = None
        self._offsets: tuple[int, ...] = ()
        #: Copies of the arrays, on a platform without blocks.
        self._contents: list[Array] | None = None

    def seal(self, is_untouched: bool = False) -> None:
        """Store the arrays' contents as they are now.

        Args:
            is_untouched: nothing has been written to arrays that lie in such a block (those of a
                worker in a fresh interpreter): the block is mapped again and not copied.
        """
        if not HAS_WORKERS:
            self._contents = [array.copy("K") for array in self.arrays]
            return
        block = None
        if is_untouched:
            block = self._common_block()
        if block is not None:
            self._block = block.descriptor
            self._offsets = tuple(array.ctypes.data - block.address for array in self.arrays)
            return
        num_bytes = sum(array.nbytes for array in self.arrays)
        if not self.arrays or num_bytes > MOST_BYTES:
            return
        contents = [array.ravel("A").view(np.uint8) for array in self.arrays]
        self._block, self._offsets = write_block(contents)
        weakref.finalize(self, _close, os.getpid(), self._block)

    def _common_block(self) -> CopyOnWriteBlock | None:
        """Return the one block that all arrays lie in already, or None."""
        blocks = {_block_around(array) for array in self.arrays}
        if len(blocks) != 1:
            return None
        return blocks.pop()

    def views(self, is_sole_copy: bool = False) -> list[Array]:
        """Return a view of each array, in private memory.

        Args:
            is_sole_copy: no other copy in this process has views, so that arrays above
                `MOST_BYTES` are returned themselves.
        """
        if self._contents is not None:
            return [array.copy("K") for array in self._contents]
        if self._block is None:
            if is_sole_copy:
                return self.arrays
            return self._read_only_views()
        memory = CopyOnWriteBlock(self._block).bytes()
        views = []
        for array, offset in zip(self.arrays, self._offsets, strict=True):
            # With the array's own strides: sums, for example, depend on the order in memory.
            view: Array = np.ndarray(array.shape, array.dtype, memory, offset, array.strides)
            views.append(view)
        return views

    def _read_only_views(self) -> list[Array]:
        views = [array.view() for array in self.arrays]
        for view in views:
            view.flags.writeable = False
        return views


def _block_around(array: Array) -> CopyOnWriteBlock | None:
    """Return the private block that an array lies in; None for any other memory."""
    owner: Any = array
    while isinstance(owner, np.ndarray):
        owner = owner.base
    return owner if isinstance(owner, CopyOnWriteBlock) else None


def _close(pid: int, descriptor: int) -> None:
    # A fork inherits the finalizer, and has a descriptor of its own that its copies still map.
    if os.getpid() == pid:
        os.close(descriptor)
