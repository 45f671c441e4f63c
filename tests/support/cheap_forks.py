"""Makes forks of the process that runs the tests cheap.

The workers of most tests are forks of it. A fork copies an entry of the page table for every 4 KiB of private memory, of which
an imported torch alone has 300 MB: with that memory in pages of 2 MiB a fork costs a quarter. And a collection of garbage in
a fork writes to every inherited object, and so copies it, unless the objects were frozen before.

Neither changes what a test sees: memory keeps its contents and addresses. Elsewhere than on Linux, and where the kernel has no
huge pages, nothing happens.
"""

from __future__ import annotations

import ctypes
import gc
import mmap
import sys

_HUGE = 2 * 2**20
_MADV_COLLAPSE = 25  # <linux/mman.h>, from Linux 6.1


def make_forks_cheap() -> None:
    """Freeze all objects that there are now, and move private memory into huge pages."""
    freeze_objects()
    use_huge_pages()


def freeze_objects() -> None:
    """No collection of garbage looks at the objects that there are now."""
    gc.collect()
    gc.freeze()


def use_huge_pages() -> None:
    """Move private memory into huge pages; milliseconds for what is there already."""
    if not sys.platform.startswith("linux") or mmap.PAGESIZE != 4096:
        return
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    with open("/proc/self/maps") as file:
        lines = file.read().splitlines()
    for line in lines:
        addresses, permissions, *_, name = [*line.split(maxsplit=5), ""][:6]
        if permissions != "rw-p" or name.strip() not in ("", "[heap]"):
            continue
        first, last = (int(each, 16) for each in addresses.split("-"))
        first, last = -(-first // _HUGE) * _HUGE, last // _HUGE * _HUGE
        if first < last:
            madvise(first, last - first, _MADV_COLLAPSE)
