"""Anonymous shared memory, and the layout of a batch's buffers in it.

It is created, sent as a descriptor, mapped, and unmapped when nothing views it any more.

``mmap.mmap`` keeps a duplicate of the descriptor open as long as the mapping lives; a user who
holds a thousand batches would run out of descriptors. So the C library's mmap is called directly,
and the descriptor closed once mapped.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from detaug.system.limits import explained
from detaug.system.platform import HAS_WORKERS, at_fork
from detaug.system.process_lock import ProcessLock

Bytes = np.ndarray[Any, np.dtype[np.uint8]]

#: Arrays start at multiples of this many bytes: a cache line, and enough for every vector width.
ALIGNMENT = 64
#: The smallest block, in bytes.
_SMALLEST = 4096

_MAP_FAILED = ctypes.c_void_p(-1).value


def _c_library() -> Any:
    """Return the C library with the types of the functions that are called; None on Windows."""
    if not HAS_WORKERS:
        return None
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = ctypes.c_void_p
    library.mmap.argtypes = [
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_long,
    ]
    library.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    library.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return library


_libc = _c_library()
_munmap = getattr(_libc, "munmap", None)


def create(
    size: int, reserved: int | None = None, inherited: bool = True
) -> tuple[int, MappedBlock]:
    """Return the descriptor and the mapping of new shared memory, which has no name.

    Args:
        size: in bytes.
        reserved: the first of these bytes, or all, are allocated now, so that a lack of memory is
            an error here and no SIGBUS later.
        inherited: processes that are forked have it too.

    Raises:
        LimitReached: (an OSError) there is no room for it, or no descriptor left; the message says
            which limit was met.
    """
    descriptor = None
    try:
        descriptor = _anonymous_file()
        os.ftruncate(descriptor, size)
        _reserve(descriptor, size if reserved is None else reserved)
        return descriptor, MappedBlock(descriptor, inherited=inherited)
    except OSError as error:
        if descriptor is not None:
            os.close(descriptor)
        raise explained(error, f"cannot get {size} bytes of shared memory for a batch") from error


def _reserve(descriptor: int, size: int) -> None:
    """Allocate the first bytes of a file, where the system can."""
    if not hasattr(os, "posix_fallocate"):
        return
    try:
        os.posix_fallocate(descriptor, 0, size)
    except OSError as error:
        # These say that the file system cannot do it, not that there is no room.
        if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
            raise


def _anonymous_file() -> int:
    """Return the descriptor of a new file without a name, in memory where the system can."""
    if hasattr(os, "memfd_create"):
        try:
            return os.memfd_create("detaug", os.MFD_CLOEXEC)
        except OSError as error:
            # A sandbox may forbid it.
            if error.errno not in (errno.ENOSYS, errno.EPERM, errno.EACCES):
                raise
    descriptor, path = tempfile.mkstemp(prefix="detaug-")
    os.unlink(path)
    return descriptor


class MappedBlock:
    """A descriptor's memory, mapped until this object is gone.

    The caller may close the descriptor at once.

    Args:
        descriptor: of the memory.
        private: writes stay in this process.
        inherited: a process that is forked has the memory too, and keeps it.
    """

    def __init__(self, descriptor: int, private: bool = False, inherited: bool = True) -> None:
        self.address = 0
        self.size = os.fstat(descriptor).st_size
        self.inherited = True
        self._owner = os.getpid()
        flags = mmap.MAP_PRIVATE if private else mmap.MAP_SHARED
        with _no_fork.current:
            address = _libc.mmap(
                None, self.size, mmap.PROT_READ | mmap.PROT_WRITE, flags, descriptor, 0
            )
            if address == _MAP_FAILED:
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
            # 0 until here: `__del__` of an object whose constructor raised unmaps nothing.
            self.address = address
            if not inherited and hasattr(mmap, "MADV_DONTFORK"):
                # Before the call: should a fork come between after all (`_before_fork`), its child
                # unmaps nothing, which does no harm.
                self.inherited = False
                self.inherited = _libc.madvise(address, self.size, mmap.MADV_DONTFORK) != 0

    def inherit(self) -> None:
        """Have processes that are forked from now on inherit the memory."""
        if self.inherited or os.getpid() != self._owner:
            # In a child without it, something else may lie at this address.
            return
        self.inherited = _libc.madvise(self.address, self.size, mmap.MADV_DOFORK) == 0

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return {
            "version": 3,
            "typestr": "|u1",
            "shape": (self.size,),
            "data": (self.address, False),
        }

    def bytes(self) -> Bytes:
        """Return the block as uint8.

        The array lives as long as any view of it, and keeps the mapping alive: NumPy has every view
        hold the array at the end of its chain of bases.
        """
        return np.asarray(self)

    def __del__(
        self,
        munmap: Any = _munmap,
        current_pid: Callable[[], int] = os.getpid,
    ) -> None:
        # The functions are defaults, because globals may be gone when the interpreter ends. In a
        # forked child that did not inherit the memory, something else may lie at this address.
        if self.address and (self.inherited or current_pid() == self._owner):
            munmap(self.address, self.size)
            self.address = 0


class CopyOnWriteBlock(MappedBlock):
    """A block mapped privately: what is written to it stays with this mapping."""

    def __init__(self, descriptor: int) -> None:
        #: Stays open and the caller's, so that the block can be mapped again.
        self.descriptor = descriptor
        super().__init__(descriptor, private=True)


#: Held while memory is mapped that a fork shall not inherit, and while another thread forks: the
#: child would keep what was mapped and not marked yet, for the whole of its life.
_no_fork = ProcessLock()
#: Seconds that a fork waits for it. Mapping takes microseconds; but the garbage collector may run
#: any code in between, and no program may hang for the sake of some memory.
_LONGEST_WAIT = 1.0


def _before_fork() -> None:
    _no_fork.current.acquire(timeout=_LONGEST_WAIT)


def _after_fork() -> None:
    # RuntimeError: this thread has waited in vain.
    with contextlib.suppress(RuntimeError):
        _no_fork.current.release()


at_fork(before=_before_fork, after_in_parent=_after_fork)


def pack_offsets(
    sizes: Sequence[int], known_offsets: Sequence[int | None] | None = None, end: int = 0
) -> tuple[tuple[int, ...], int]:
    """Return the offsets of buffers in one block, and the bytes needed in all.

    Args:
        sizes: of the buffers, in bytes.
        known_offsets: offsets of those that are in the block already; None: of none.
        end: the others come after this many bytes, one after the other, each aligned.
    """
    if known_offsets is None:
        known_offsets = [None] * len(sizes)
    offsets = []
    for size, known_offset in zip(sizes, known_offsets, strict=False):
        start = known_offset
        if start is None:
            start = aligned(end)
        offsets.append(start)
        end = max(end, start + size)
    return tuple(offsets), end


def write_block(parts: Sequence[Bytes]) -> tuple[int, tuple[int, ...]]:
    """Return the descriptor of a new block with copies of these arrays, and their offsets.

    Raises:
        LimitReached: (an OSError) there is no room for it; the message says which limit was met.
    """
    offsets, size = pack_offsets([part.nbytes for part in parts])
    descriptor = None
    try:
        descriptor = _anonymous_file()
        os.ftruncate(descriptor, size)
        # Written to the file, not copied through a mapping: a copy would cause a page fault for
        # each page, which the kernel fills with zeros first.
        for part, offset in zip(parts, offsets, strict=True):
            _write_all(descriptor, part, offset)
        return descriptor, offsets
    except OSError as error:
        if descriptor is not None:
            os.close(descriptor)
        raise explained(error, f"cannot get {size} bytes of shared memory") from error


def _write_all(descriptor: int, contents: Bytes, offset: int) -> None:
    """Write bytes at an offset of a file; one call of the kernel writes at most 2 GiB."""
    remaining = contents.data
    while remaining:
        num_written = os.pwrite(descriptor, remaining, offset)
        remaining = remaining[num_written:]
        offset += num_written


def aligned(offset: int) -> int:
    """Return the first multiple of `ALIGNMENT` that is not below an offset."""
    return -(-offset // ALIGNMENT) * ALIGNMENT


def capacity_for(size: int) -> int:
    """Return the size of a block for a batch of `size` bytes: an eighth more.

    Batches whose size varies a little can then use each other's blocks. The surplus costs address
    space and no memory until it is touched.
    """
    return max(size + size // 8, _SMALLEST)
