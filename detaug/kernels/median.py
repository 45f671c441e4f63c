"""Median filter over boxes of any size: exact, by bisection of the values' bits.

float32 numbers are mapped to uint32 keys of the same order. Bit by bit from the highest one, a line of voxels counts
how many keys of each one's box are below its candidate; the candidate stays where they are not too many. No step
depends on the data, and all run along lines, for vectors.

Boxes reach beyond the image into its mirror image about the outermost voxels' outer faces, as SciPy's do.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from detaug.kernels.compiling import inlined, kernel
from detaug.kernels.elementary import bits_of_float, float_from_bits
from detaug.kernels.reflection import reflected

_SIGN = np.uint32(0x80000000)


@inlined
def _key(x: Any) -> Any:
    """A uint32 that is ordered as float32 numbers are; -0 comes before 0, NaN last (negative NaN first)."""
    bits = bits_of_float(x)
    flip = np.uint32(np.int32(np.int32(bits) >> np.int32(31)))
    return np.uint32(bits ^ np.uint32(flip | _SIGN))


@inlined
def _value(key: Any) -> Any:
    """The number of a key."""
    flip = np.uint32(np.int32(np.int32(key) >> np.int32(31)))
    return float_from_bits(np.uint32(key ^ np.uint32(np.uint32(~flip) | _SIGN)))


def _count_source(width: int) -> str:
    """A function that counts over ``width`` neighbours on a row of keys, written out for the sake of vectors."""
    counted = " + ".join(f"u(keys[at + u64({offset}) + k] < limit)" for offset in range(width))
    lines = [
        "def count(keys, at, limits, counts, n):",
        "for k in range(n):",
        "    limit = limits[k]",
        f"    counts[k] = u(counts[k] + u({counted}))",
    ]
    return "\n    ".join(lines)


def _count(width: int) -> Any:
    names: dict[str, Any] = {"u": np.uint32, "u64": np.uint64}
    exec(_count_source(width), names)
    return inlined(names["count"])


_count1, _count2, _count3, _count4 = (_count(width) for width in (1, 2, 3, 4))


@inlined
def _count_row(keys: Any, start: Any, width: Any, limits: Any, counts: Any, n: Any) -> None:
    """Add to each voxel's count how many of ``width`` keys, from its own place on, are below its limit."""
    length = np.uint64(n)
    done = 0
    while done < width:
        at = np.uint64(start + done)
        step = min(4, width - done)
        if step == 4:
            _count4(keys, at, limits, counts, length)
        elif step == 3:
            _count3(keys, at, limits, counts, length)
        elif step == 2:
            _count2(keys, at, limits, counts, length)
        else:
            _count1(keys, at, limits, counts, length)
        done += step


@inlined
def _fill_keys(plane: Any, n1: Any, n2: Any, s1: Any, s2: Any, keys: Any, slot: Any) -> None:
    """The keys of a plane and of what lies beyond its ends, into a slot of the ring."""
    pitch = n2 + s2 - 1
    for j in range(n1 + s1 - 1):
        row = reflected(j - s1 // 2, n1, True) * n2
        at = slot + j * pitch
        for k in range(s2 // 2):
            keys[at + k] = _key(plane[row + reflected(k - s2 // 2, n2, True)])
        first, to = np.uint64(row), np.uint64(at + s2 // 2)
        for k in range(np.uint64(n2)):
            keys[to + k] = _key(plane[first + k])
        for k in range(n2 + s2 // 2, pitch):
            keys[at + k] = _key(plane[row + reflected(k - s2 // 2, n2, True)])


@kernel("void(float32[:,::1], float32[:,::1], int64, int64, int64, int64)")
def median_filter(source: Any, destination: Any, n2: Any, s0: Any, s1: Any, s2: Any) -> None:
    """The middle value of each box of s0 * s1 * s2 voxels, the upper one of two if their number is even.

    A box of s voxels begins s // 2 before its voxel.

    Args:
        source, destination: float32 (X, Y * Z); may be one array.
        n2: Z.
    """
    n0, size = source.shape
    n1 = size // n2
    pitch = n2 + s2 - 1
    plane_size = pitch * (n1 + s1 - 1)
    before, after = s0 // 2, s0 - 1 - s0 // 2
    slots = min(2 * before + 1, n0)
    keys = np.empty(slots * plane_size, np.uint32)
    found = np.empty(n2, np.uint32)
    limits = np.empty(n2, np.uint32)
    counts = np.empty(n2, np.uint32)
    rank = np.uint32((s0 * s1 * s2) // 2)
    ready = 0
    for i in range(n0):
        while ready < min(i + before + 1, n0):
            _fill_keys(source[ready], n1, n2, s1, s2, keys, (ready % slots) * plane_size)
            ready += 1
        plane = destination[i]
        for j in range(n1):
            found[:] = np.uint32(0)
            for bit in range(32):
                mask = np.uint32(_SIGN >> np.uint32(bit))
                for k in range(n2):
                    limits[k] = np.uint32(found[k] | mask)
                    counts[k] = np.uint32(0)
                for a in range(-before, after + 1):
                    slot = (reflected(i + a, n0, True) % slots) * plane_size
                    for b in range(s1):
                        _count_row(keys, slot + (j + b) * pitch, s2, limits, counts, n2)
                for k in range(n2):
                    found[k] = limits[k] if counts[k] <= rank else found[k]
            to = np.uint64(j * n2)
            for k in range(np.uint64(n2)):
                plane[to + k] = _value(found[k])
