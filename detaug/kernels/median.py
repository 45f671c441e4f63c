"""Median filter over boxes of any size: exact, by bisection of the values' bits.

float32 numbers are mapped to uint32 keys of the same order. For large boxes these are sorted, and each voxel's rank stands for
its key: it has as few bits as there are voxels. Bit by bit from the highest one, some lines of voxels count how many keys of
each one's box are below its candidate; the candidate stays where they are not too many. No step depends on the data, and all
run along lines, for vectors: the upper 16 bits of ranks in twice as many lanes as other bits.

Boxes reach beyond the image into its mirror image about the outermost voxels' outer faces, as SciPy's do.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from detaug.kernels.compiling import inlined, kernel
from detaug.kernels.elementary import bits_of_float, float_from_bits
from detaug.kernels.reflection import reflected

_SIGN = np.uint32(0x80000000)
# Voxels that are bisected together: several lines, with what lies between them, so that loops are long.
_BLOCK = 2048
# Boxes of at least as many voxels are worth sorting the image for.
_MANY = 48


@inlined
def key_of(x: Any) -> Any:
    """A uint32 that is ordered as float32 numbers are; -0 comes before 0, NaN last (negative NaN first)."""
    bits = bits_of_float(x)
    flip = np.uint32(np.int32(np.int32(bits) >> np.int32(31)))
    return np.uint32(bits ^ np.uint32(flip | _SIGN))


@inlined
def value_of(key: Any) -> Any:
    """The number of a key."""
    flip = np.uint32(np.int32(np.int32(key) >> np.int32(31)))
    return float_from_bits(np.uint32(key ^ np.uint32(np.uint32(~flip) | _SIGN)))


def _count_source(width: int) -> str:
    """A function that counts over ``width`` neighbours on a row of ranks, written out for the sake of vectors."""
    counted = " + ".join(f"u(ranks[at + u64({offset}) + k] < limit)" for offset in range(width))
    lines = [
        "def count(ranks, at, limits, counts, n):",
        "for k in range(n):",
        "    limit = limits[k]",
        f"    counts[k] = u(counts[k] + u({counted}))",
    ]
    return "\n    ".join(lines)


def _count(width: int, kind: Any) -> Any:
    names: dict[str, Any] = {"u": kind, "u64": np.uint64}
    exec(_count_source(width), names)
    return inlined(names["count"])


def _bisection(kind: Any) -> Any:
    """The walk over the bits of a line's ranks, for kernels to inline: ``kind`` is the type of ranks and counts."""
    count1, count2, count3, count4 = (_count(width, kind) for width in (1, 2, 3, 4))

    @inlined
    def count_row(ranks: Any, start: Any, width: Any, limits: Any, counts: Any, n: Any) -> None:
        """Add to each voxel's count how many of ``width`` ranks, from its own place on, are below its limit."""
        length = np.uint64(n)
        done = 0
        while done < width:
            at = np.uint64(start + done)
            step = min(4, width - done)
            if step == 4:
                count4(ranks, at, limits, counts, length)
            elif step == 3:
                count3(ranks, at, limits, counts, length)
            elif step == 2:
                count2(ranks, at, limits, counts, length)
            else:
                count1(ranks, at, limits, counts, length)
            done += step

    @inlined
    def bisect(
        ranks: Any, slots: Any, rows: Any, pitch: Any, width: Any, bits: Any, middle: Any, found: Any, limits: Any,
        counts: Any, n: Any,
    ) -> None:  # fmt: skip
        """Settle the lowest ``bits`` bits of each voxel's middle rank, whose higher bits are in ``found``.

        Args:
            ranks: of a ring of planes; ``slots``: where the first row of a box begins in each of its planes.
            rows, pitch, width: rows of a box in a plane, how far they are apart, and their length.
            middle: how many ranks may be below.
        """
        for bit in range(bits - 1, -1, -1):
            mask = kind(1 << bit)
            for k in range(n):
                limits[k] = kind(found[k] | mask)
                counts[k] = kind(0)
            for a in range(slots.shape[0]):
                for b in range(rows):
                    count_row(ranks, slots[a] + b * pitch, width, limits, counts, n)
            for k in range(n):
                found[k] = limits[k] if counts[k] <= middle else found[k]

    return bisect


_bisect_upper, _bisect_lower = _bisection(np.uint16), _bisection(np.uint32)


@inlined
def _sorted(keys: Any, ranks: Any) -> Any:
    """The keys in order; each one's place in it goes to ``ranks``. By eleven bits at a time from the lowest, stable."""
    n = keys.shape[0]
    order, other = np.empty(n, np.uint32), np.empty(n, np.uint32)
    spare = np.empty(n, np.uint32)
    places = np.empty(2048, np.int64)
    for i in range(n):
        order[i] = np.uint32(i)
    for shift in (np.uint32(0), np.uint32(11), np.uint32(22)):
        places[:] = 0
        for i in range(n):
            places[(keys[i] >> shift) & np.uint32(2047)] += 1
        total = 0
        for digit in range(2048):
            count = places[digit]
            places[digit] = total
            total += count
        for i in range(n):
            digit = (keys[i] >> shift) & np.uint32(2047)
            at = places[digit]
            places[digit] = at + 1
            spare[at] = keys[i]
            other[at] = order[i]
        keys, spare = spare, keys
        order, other = other, order
    for i in range(n):
        ranks[order[i]] = np.uint32(i)
    return keys


@inlined
def _fill_ranks(plane: Any, n1: Any, n2: Any, s1: Any, s2: Any, low: Any, upper: Any, lower: Any, slot: Any) -> None:
    """The ranks of a plane and of what lies beyond its ends, into a slot of both rings."""
    pitch = n2 + s2 - 1
    for j in range(n1 + s1 - 1):
        row = reflected(j - s1 // 2, n1, True) * n2
        at = slot + j * pitch
        for k in range(s2 // 2):
            lower[at + k] = plane[row + reflected(k - s2 // 2, n2, True)]
        first, to = np.uint64(row), np.uint64(at + s2 // 2)
        for k in range(np.uint64(n2)):
            lower[to + k] = plane[first + k]
        for k in range(n2 + s2 // 2, pitch):
            lower[at + k] = plane[row + reflected(k - s2 // 2, n2, True)]
        for k in range(np.uint64(pitch)):
            upper[np.uint64(at) + k] = np.uint16(lower[np.uint64(at) + k] >> low)  # not used for keys


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
    keys = np.empty(n0 * size, np.uint32)
    for i in range(n0):
        for k in range(size):
            keys[i * size + k] = key_of(source[i, k])
    many = s0 * s1 * s2 >= _MANY
    ranks, ordered = keys, keys
    bits = 32
    if many:
        ranks = np.empty(n0 * size, np.uint32)
        ordered = _sorted(keys, ranks)
        while bits > 0 and not (n0 * size - 1) >> (bits - 1):
            bits -= 1
    # counts of the upper bits have 16 bits themselves
    high = min(bits, 16) if many & (s0 * s1 * s2 < 2**16) else 0
    low = bits - high
    upper, lower = np.empty(slots * plane_size, np.uint16), np.empty(slots * plane_size, np.uint32)
    lines = min(n1, max(1, _BLOCK // pitch))
    block = lines * pitch
    found, limits, counts = np.empty(block, np.uint16), np.empty(block, np.uint16), np.empty(block, np.uint16)
    found_low, limits_low, counts_low = (
        np.empty(block, np.uint32),
        np.empty(block, np.uint32),
        np.empty(block, np.uint32),
    )
    planes = np.empty(s0, np.int64)
    middle = (s0 * s1 * s2) // 2
    ready = 0
    for i in range(n0):
        while ready < min(i + before + 1, n0):
            plane = ranks[ready * size : (ready + 1) * size]
            _fill_ranks(plane, n1, n2, s1, s2, np.uint32(low), upper, lower, (ready % slots) * plane_size)
            ready += 1
        plane = destination[i]
        for j in range(0, n1, lines):
            together = min(lines, n1 - j)
            n = (together - 1) * pitch + n2
            for a in range(-before, after + 1):
                planes[a + before] = (reflected(i + a, n0, True) % slots) * plane_size + j * pitch
            found[:] = np.uint16(0)
            _bisect_upper(upper, planes, s1, pitch, s2, high, np.uint16(middle), found, limits, counts, n)
            for k in range(n):
                found_low[k] = np.uint32(np.uint32(found[k]) << np.uint32(low)) if high > 0 else np.uint32(0)
            _bisect_lower(lower, planes, s1, pitch, s2, low, np.uint32(middle), found_low, limits_low, counts_low, n)
            for line in range(together):
                to, at = np.uint64((j + line) * n2), np.uint64(line * pitch)
                for k in range(np.uint64(n2)):
                    key = found_low[at + k]
                    plane[to + k] = value_of(ordered[key] if many else key)
