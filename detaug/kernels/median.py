"""Median filter: lists of voxels sorted by networks of minima and maxima, which neighbouring boxes share.

Columns of s0 voxels are sorted, then merged along the second axis into planes' lists, two, four ... at a time, and these
along the third axis; of the last merge only the middle value is made. All of it is minima and maxima of whole lines, read at
a shift, for vectors; a list that several boxes have in common is made once. No step depends on the data. float32 numbers are
compared as uint32 keys of the same order.

Boxes reach beyond the image into its mirror image about the outermost voxels' outer faces, as SciPy's do.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from detaug.kernels.compiling import inlined, kernel
from detaug.kernels.convolution import reflected
from detaug.kernels.elementary import key_of, value_of

#: Voxels of a box along an axis: a larger one's program would take seconds to write.
LARGEST = 15

# Voxels that are worked on together: lines of them, as long as vectors want, that stay in the cache.
_BLOCK = 512
# Numbers that loops which the compiler unrolls take at once; what is left over would be done one by one.
_VECTORS = 64
_BOTH, _LESS, _GREATER = 0, 1, 2


class Shifted(NamedTuple):
    """A line of numbers, read that many lines and voxels further on."""

    number: int
    lines: int = 0
    voxels: int = 0

    def moved(self, lines: int, voxels: int) -> Shifted:
        return Shifted(self.number, self.lines + lines, self.voxels + voxels)


class Program(NamedTuple):
    """What to do with lines of numbers.

    Attributes:
        steps: (steps, 11) int64: kind, place of the lesser, place of the greater, then place, lines and voxels of shift of one
            operand and the other, then how many lines and voxels more than the output's are made.
        places: how many lines are kept at a time; the first ones hold the box's planes.
        result: place, lines and voxels of shift of the middle value.
    """

    steps: np.ndarray
    places: int
    result: tuple[int, int, int]


class _Network:
    """Collects comparisons; every one makes two new numbers."""

    def __init__(self, inputs: int) -> None:
        self.count = inputs
        self.comparisons: list[tuple[int, int, Shifted, Shifted]] = []

    def compared(self, a: Shifted, b: Shifted) -> tuple[Shifted, Shifted]:
        low, high = self.count, self.count + 1
        self.count += 2
        self.comparisons.append((low, high, a, b))
        return Shifted(low), Shifted(high)

    def merged(self, a: list[Shifted], b: list[Shifted]) -> list[Shifted]:
        """Two sorted lists as one, by Batcher's odd-even merge."""
        if not a or not b:
            return a or b
        if len(a) == len(b) == 1:
            return list(self.compared(a[0], b[0]))
        even, odd = self.merged(a[::2], b[::2]), self.merged(a[1::2], b[1::2])
        return self._zipped(even, odd)

    def _zipped(self, even: list[Shifted], odd: list[Shifted]) -> list[Shifted]:
        """The least is the first of the even ones; then the n-th odd one against the next even one."""
        made = [even[0]]
        for n, one in enumerate(odd):
            if n + 1 < len(even):
                made += self.compared(one, even[n + 1])
            else:
                made.append(one)
        return made + even[len(odd) + 1 :]

    def sorted(self, numbers: list[Shifted]) -> list[Shifted]:
        half = len(numbers) // 2
        if not half:
            return numbers
        return self.merged(self.sorted(numbers[:half]), self.sorted(numbers[half:]))

    def middle(self, a: list[Shifted], b: list[Shifted], rank: int) -> Shifted:
        """What stands at a rank of two sorted lists: the least of the maxima of i from one and rank + 1 - i from the other."""
        found: Shifted | None = None
        for taken in range(max(0, rank + 1 - len(b)), min(len(a), rank + 1) + 1):
            other = rank + 1 - taken
            ends = [numbers[count - 1] for numbers, count in ((a, taken), (b, other)) if count]
            largest = self.compared(*ends)[1] if len(ends) == 2 else ends[0]
            found = largest if found is None else self.compared(found, largest)[0]
        assert found is not None
        return found


def _moved(numbers: list[Shifted], lines: int, voxels: int) -> list[Shifted]:
    return [each.moved(lines, voxels) for each in numbers]


@lru_cache(maxsize=16)
def program(s0: int, s1: int, s2: int) -> Program:
    """The steps for a box's middle value, the upper one of two if their number is even."""
    network = _Network(s0)
    column = network.sorted([Shifted(plane) for plane in range(s0)])
    plane = _joined(network, _doubled(network, column, s1, (1, 0)), s1, (1, 0))
    lists = _doubled(network, plane, s2 - 1, (0, 1))
    rank = s0 * s1 * s2 // 2
    if s2 == 1:
        result = plane[rank]
    else:
        size = 1 << (len(lists) - 1)
        rest = _joined(network, lists, s2 - size, (0, 1))
        result = network.middle(lists[-1], _moved(rest, 0, size), rank)
    return _scheduled(network, s0, result)


def _doubled(network: _Network, numbers: list[Shifted], size: int, along: tuple[int, int]) -> list[list[Shifted]]:
    """The sorted lists of one, two, four ... neighbours, as long as they are not more than ``size``."""
    lists = [numbers]
    while 2 ** len(lists) <= size:
        step = 2 ** (len(lists) - 1)
        lists.append(network.merged(lists[-1], _moved(lists[-1], step * along[0], step * along[1])))
    return lists


def _joined(network: _Network, lists: list[list[Shifted]], size: int, along: tuple[int, int]) -> list[Shifted]:
    """The sorted list of ``size`` neighbours, of lists of powers of two of them."""
    joined: list[Shifted] = []
    done = 0
    for power in reversed(range(len(lists))):
        if size & 1 << power:
            joined = network.merged(joined, _moved(lists[power], done * along[0], done * along[1]))
            done += 1 << power
    return joined


def _scheduled(network: _Network, inputs: int, result: Shifted) -> Program:
    """Leaves out what is not needed, and lets numbers take the places of those that are done with."""
    extents: dict[int, tuple[int, int]] = {result.number: (result.lines, result.voxels)}
    last_use: dict[int, int] = {result.number: len(network.comparisons)}
    kept = []
    for at in range(len(network.comparisons) - 1, -1, -1):
        low, high, a, b = network.comparisons[at]
        if low not in extents and high not in extents:
            continue
        lines, voxels = (max(pair) for pair in zip(extents.get(low, (0, 0)), extents.get(high, (0, 0)), strict=True))
        for operand in (a, b):
            before = extents.get(operand.number, (0, 0))
            extents[operand.number] = (
                max(before[0], lines + operand.lines),
                max(before[1], voxels + operand.voxels),
            )
            last_use.setdefault(operand.number, at)
        kind = _BOTH if low in extents and high in extents else _LESS if low in extents else _GREATER
        kept.append((at, kind, low, high, a, b, lines, voxels))
    places = {number: number for number in range(inputs)}
    free: list[int] = []
    count = inputs
    steps = []
    for at, kind, low, high, a, b, lines, voxels in reversed(kept):
        for number in (low, high):
            if number in extents:
                if not free:
                    free.append(count)
                    count += 1
                places[number] = free.pop()
        steps.append([kind, places.get(low, 0), places.get(high, 0), places[a.number], a.lines, a.voxels,
                      places[b.number], b.lines, b.voxels, lines, voxels])  # fmt: skip
        free += [places[number] for number in sorted({a.number, b.number}) if last_use[number] == at]
    table = np.array(steps, np.int64).reshape(-1, 11)
    return Program(table, count, (places[result.number], result.lines, result.voxels))


@inlined
def _whole(n: Any) -> Any:
    """As many numbers, and what is missing to whole vectors."""
    return (n + (_VECTORS - 1)) & -_VECTORS


@inlined
def _fill(plane: Any, n1: Any, n2: Any, s1: Any, s2: Any, keys: Any, slot: Any) -> None:
    """The keys of a plane and of what lies beyond its ends, into a slot of the ring."""
    pitch = n2 + s2 - 1
    for j in range(n1 + s1 - 1):
        row = reflected(j - s1 // 2, n1, True) * n2
        at = slot + j * pitch
        for k in range(s2 // 2):
            keys[at + k] = key_of(plane[row + reflected(k - s2 // 2, n2, True)])
        first, to = np.uint64(row), np.uint64(at + s2 // 2)
        for k in range(np.uint64(n2)):
            keys[to + k] = key_of(plane[first + k])
        for k in range(n2 + s2 // 2, pitch):
            keys[at + k] = key_of(plane[row + reflected(k - s2 // 2, n2, True)])


@kernel("void(float32[:,::1], float32[:,::1], int64, int64, int64, int64, int64[:,::1], int64, int64, int64, int64)")
def median_filter(
    source: Any, destination: Any, n2: Any, s0: Any, s1: Any, s2: Any, steps: Any, places: Any, result: Any,
    result_lines: Any, result_voxels: Any,
) -> None:  # fmt: skip
    """The middle value of each box of s0 * s1 * s2 voxels, the upper one of two if their number is even.

    A box of s voxels begins s // 2 before its voxel.

    Args:
        source, destination: float32 (X, Y * Z); may be one array.
        n2: Z.
        steps, places, result, result_lines, result_voxels: of `program`.
    """
    n0, size = source.shape
    n1 = size // n2
    pitch = n2 + s2 - 1
    plane_size = pitch * (n1 + s1 - 1)
    before, after = s0 // 2, s0 - 1 - s0 // 2
    slots = min(2 * before + 1, n0)
    keys = np.zeros(slots * plane_size + s2, np.uint32)
    lines = min(n1, max(1, _BLOCK // pitch))
    # Room for whole vectors, also where a line is read at a shift; and no multiple of a page, or the lines would push each
    # other out of the first-level cache.
    width = _whole((lines + s1 - 1) * pitch + s2) + _VECTORS + 16
    numbers = np.zeros(places * width + _VECTORS * 8, np.uint32)
    ready = 0
    for i in range(n0):
        while ready < min(i + before + 1, n0):
            _fill(source[ready], n1, n2, s1, s2, keys, (ready % slots) * plane_size)
            ready += 1
        plane = destination[i]
        for j in range(0, n1, lines):
            together = min(lines, n1 - j)
            held = (together + s1 - 1) * pitch
            for a in range(-before, after + 1):
                start = (reflected(i + a, n0, True) % slots) * plane_size + j * pitch
                to = (a + before) * width
                for k in range(held):  # slices would be compiled for longer
                    numbers[to + k] = keys[start + k]
            for t in range(steps.shape[0]):
                n = _whole((together - 1 + steps[t, 9]) * pitch + n2 + steps[t, 10])
                at_a = steps[t, 3] * width + steps[t, 4] * pitch + steps[t, 5]
                at_b = steps[t, 6] * width + steps[t, 7] * pitch + steps[t, 8]
                one, other = numbers[at_a : at_a + n], numbers[at_b : at_b + n]
                less = numbers[steps[t, 1] * width : steps[t, 1] * width + n]
                greater = numbers[steps[t, 2] * width : steps[t, 2] * width + n]
                if steps[t, 0] == _BOTH:
                    for k in range(n):
                        x, y = one[k], other[k]
                        less[k] = x if x < y else y
                        greater[k] = y if x < y else x
                elif steps[t, 0] == _LESS:
                    for k in range(n):
                        less[k] = one[k] if one[k] < other[k] else other[k]
                else:
                    for k in range(n):
                        greater[k] = other[k] if one[k] < other[k] else one[k]
            at = result * width + result_lines * pitch + result_voxels
            for line in range(together):
                first, to = np.uint64(at + line * pitch), np.uint64((j + line) * n2)
                for k in range(np.uint64(n2)):
                    plane[to + k] = value_of(numbers[first + k])
