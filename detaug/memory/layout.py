"""Where the buffers of a batch lie in a block of memory: pure arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

#: Arrays start at multiples of this many bytes: a cache line, and enough for every vector width.
ALIGNMENT = 64
_PAGE = 4096


@dataclass(frozen=True)
class Layout:
    """Offsets of some buffers in one block.

    Attributes:
        offsets: where each buffer begins, bytes, in the order given.
        size: bytes needed in all.
    """

    offsets: tuple[int, ...]
    size: int


def lay_out(sizes: Sequence[int]) -> Layout:
    """Put buffers of these sizes (bytes) one after the other, each aligned, none overlapping another."""
    offsets = []
    end = 0
    for size in sizes:
        if size < 0:
            raise ValueError(f"a buffer cannot have {size} bytes")
        start = round_up(end, ALIGNMENT)
        offsets.append(start)
        end = start + size
    return Layout(tuple(offsets), end)


def round_up(number: int, multiple: int) -> int:
    """The smallest multiple that is not below `number`."""
    return -(-number // multiple) * multiple


def capacity_for(size: int) -> int:
    """How large a block to make for a batch of `size` bytes: an eighth more, in whole pages, so that batches whose size
    varies a little can use each other's blocks. The surplus costs address space and no memory until it is touched."""
    return round_up(max(size + size // 8, 1), _PAGE)
