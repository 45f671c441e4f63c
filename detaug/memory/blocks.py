"""Anonymous shared memory: made, sent as a descriptor, mapped, and unmapped when nothing views it any more; and where the buffers
of a batch lie in it.

``mmap.mmap`` keeps a duplicate of the descriptor open as long as the mapping lives; a user who holds a thousand batches
would run out of descriptors. So the C library's mmap is called directly, and the descriptor closed once mapped.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import tempfile
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from detaug.memory.limits import explained

Bytes = np.ndarray[Any, np.dtype[np.uint8]]

#: Arrays start at multiples of this many bytes: a cache line, and enough for every vector width.
ALIGNMENT = 64
_PAGE = 4096

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_libc.munmap.restype = ctypes.c_int
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.madvise.restype = ctypes.c_int
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_MAP_FAILED = ctypes.c_void_p(-1).value
_munmap = _libc.munmap


def create(size: int, reserved: int | None = None) -> int:
    """A descriptor of `size` bytes of new shared memory that no name leads to. The first `reserved` of them, or all, are
    allocated now, so that a lack of memory is an error here and no SIGBUS later.

    Raises:
        LimitReached: (an OSError) there is no room for it, or no descriptor left; the message says which limit was met.
    """
    descriptor = None
    try:
        descriptor = _anonymous_file()
        os.ftruncate(descriptor, size)
        if hasattr(os, "posix_fallocate"):
            try:
                os.posix_fallocate(descriptor, 0, size if reserved is None else reserved)
            except OSError as error:
                if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
                    raise
    except OSError as error:
        if descriptor is not None:
            os.close(descriptor)
        raise explained(error, f"cannot get {size} bytes of shared memory for a batch") from error
    return descriptor


def _anonymous_file() -> int:
    if hasattr(os, "memfd_create"):
        try:
            return os.memfd_create("detaug", os.MFD_CLOEXEC)
        except OSError as error:
            if error.errno not in (errno.ENOSYS, errno.EPERM, errno.EACCES):  # a sandbox may forbid it
                raise
    descriptor, path = tempfile.mkstemp(prefix="detaug-")
    os.unlink(path)
    return descriptor


class Mapping:
    """`size` bytes of a descriptor, mapped until this object is gone; the caller may close the descriptor at once. `private`:
    writes stay in this process. `inherited`: a process that is forked has it too, and keeps its memory."""

    def __init__(self, descriptor: int, size: int, private: bool = False, inherited: bool = True) -> None:
        self.size = size
        self.address = 0
        self.inherited = True
        self._owner = os.getpid()
        flags = mmap.MAP_PRIVATE if private else mmap.MAP_SHARED
        address = _libc.mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, flags, descriptor, 0)
        if address == _MAP_FAILED or address is None:
            number = ctypes.get_errno()
            error = OSError(number, os.strerror(number))
            raise explained(error, f"cannot map {size} bytes of shared memory for a batch")
        self.address = address
        if not inherited and hasattr(mmap, "MADV_DONTFORK"):
            self.inherited = False  # first: another thread may fork before the call, and a child so does no harm
            self.inherited = _libc.madvise(self.address, self.size, mmap.MADV_DONTFORK) != 0

    def inherit(self) -> None:
        """Processes that are forked from now on have it."""
        if not self.inherited and os.getpid() == self._owner:  # in a child without it, something else may lie there
            self.inherited = _libc.madvise(self.address, self.size, mmap.MADV_DOFORK) == 0

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return {"version": 3, "typestr": "|u1", "shape": (self.size,), "data": (self.address, False)}

    def bytes(self) -> Bytes:
        """The block as uint8; it and all its views keep the mapping alive."""
        return np.asarray(self)

    def __del__(self, munmap: Callable[[int, int], int] = _munmap, current_pid: Callable[[], int] = os.getpid) -> None:
        # In a forked child that did not inherit it something else may lie there.
        if self.address and (self.inherited or current_pid() == self._owner):
            munmap(self.address, self.size)
            self.address = 0


class BlockView:
    """A view of a block, or of `size` bytes of it from `offset` on: it lives as long as any array that views it."""

    def __init__(self, mapping: Mapping, offset: int = 0, size: int | None = None) -> None:
        self._mapping = mapping
        self.__array_interface__ = {
            **mapping.__array_interface__,
            "shape": (mapping.size - offset if size is None else size,),
            "data": (mapping.address + offset, False),
        }

    def bytes(self) -> Bytes:
        """It as uint8; its views keep this one."""
        return np.asarray(self)


class Layout(NamedTuple):
    """Where buffers lie in one block (bytes), in the order given, and the bytes needed in all."""

    offsets: tuple[int, ...]
    size: int


def lay_out(sizes: Sequence[int]) -> Layout:
    """Put buffers of these sizes (bytes) one after the other, each aligned, none overlapping another."""
    offsets = []
    end = 0
    for size in sizes:
        start = round_up(end, ALIGNMENT)
        offsets.append(start)
        end = start + size
    return Layout(tuple(offsets), end)


def written(parts: Sequence[Bytes]) -> tuple[int, Layout]:
    """The descriptor of a new block with copies of these, and where they lie."""
    layout = lay_out([part.nbytes for part in parts])
    descriptor = create(layout.size)
    try:
        block = Mapping(descriptor, layout.size).bytes()
    except BaseException:
        os.close(descriptor)
        raise
    for part, offset in zip(parts, layout.offsets, strict=True):
        np.copyto(block[offset : offset + part.nbytes], part)
    return descriptor, layout


def round_up(number: int, multiple: int) -> int:
    """The smallest multiple that is not below `number`."""
    return -(-number // multiple) * multiple


def capacity_for(size: int) -> int:
    """How large a block to make for a batch of `size` bytes: an eighth more, in whole pages, so that batches whose size
    varies a little can use each other's blocks. The surplus costs address space and no memory until it is touched."""
    return round_up(max(size + size // 8, 1), _PAGE)
