"""Median filter: lists of voxels sorted by networks, which neighbouring boxes share.

The networks consist of minima and maxima.

Columns of voxels along the first axis are sorted, then merged along the second axis into planes'
lists, two, four ... at a time, and these along the third axis; of the last merge only the middle
value is made. All of it is minima and maxima of whole lines, read at a shift, for vectors; a list
that several boxes have in common is made once. No step depends on the data. float32 numbers are
compared as uint32 keys of the same order.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np

from detaug.kernels.compiling import inlined, kernel
from detaug.kernels.elementary import key_of, value_of
from detaug.kernels.voxels import padded

#: Voxels of a box along an axis: a larger one's program would take seconds to write.
LARGEST = 15

# Voxels that are worked on together: lines of them, as long as vectors want, that stay in the
# cache.
_BLOCK = 512
# Numbers that loops which the compiler unrolls take at once; what is left over would be done one by
# one.
_VECTORS = 64


def median_filter(volume: np.ndarray, box: tuple[int, int, int], out: np.ndarray) -> None:
    """Write the middle value of each box of a float32 volume (X, Y, Z).

    It is the upper one of two if their number is even.

    A box of s voxels begins s // 2 before its voxel. It reaches beyond the volume into its mirror
    image about the outermost voxels' outer faces, as SciPy's do. The result may be the volume
    itself.
    """
    source = padded(volume, [(n // 2, n - 1 - n // 2) for n in box], "symmetric")
    run_program(source, out, *_program(*box, source.shape[2]))


class Shifted(NamedTuple):
    """A line of numbers, read that many voxels further on."""

    number: int
    shift: int = 0


def _moved(numbers: list[Shifted], shift: int) -> list[Shifted]:
    """Return the lists of boxes that lie further on."""
    return [Shifted(number.number, number.shift + shift) for number in numbers]


def _half(size: int) -> int:
    """Return the largest power of two below the number."""
    return 1 << (size - 1).bit_length() - 1


class _Network:
    """Collects comparisons; every one makes two new numbers."""

    def __init__(self, inputs: int) -> None:
        self.count = inputs
        self.comparisons: list[tuple[int, int, Shifted, Shifted]] = []

    def compared(self, a: Shifted, b: Shifted) -> tuple[Shifted, Shifted]:
        """Add a comparison; return the numbers of the minimum and of the maximum."""
        low = self.count
        high = self.count + 1
        self.count += 2
        self.comparisons.append((low, high, a, b))
        return Shifted(low), Shifted(high)

    def merged(self, a: list[Shifted], b: list[Shifted]) -> list[Shifted]:
        """Return two sorted lists as one, by Batcher's odd-even merge."""
        if not a or not b:
            return a or b
        if len(a) == len(b) == 1:
            return list(self.compared(a[0], b[0]))
        # The least is the first of the even ones; then the n-th odd one against the next even one.
        even = self.merged(a[::2], b[::2])
        odd = self.merged(a[1::2], b[1::2])
        result = [even[0]]
        for one, other in zip(odd, even[1:], strict=False):
            result += self.compared(one, other)
        return result + odd[len(even) - 1 :] + even[len(odd) + 1 :]

    def sorted(self, numbers: list[Shifted]) -> list[Shifted]:
        """Return numbers in ascending order."""
        half = len(numbers) // 2
        if not half:
            return numbers
        return self.merged(self.sorted(numbers[:half]), self.sorted(numbers[half:]))

    def neighbours(self, numbers: list[Shifted], stride: int) -> Callable[[int], list[Shifted]]:
        """Return the function that gives the sorted list of `size` neighbours' lists."""

        @cache
        def of(size: int) -> list[Shifted]:
            if size == 1:
                return numbers
            half = _half(size)
            return self.merged(of(half), _moved(of(size - half), half * stride))

        return of

    def middle(self, a: list[Shifted], b: list[Shifted], rank: int) -> Shifted:
        """Return the value at a rank of two sorted lists.

        It is the least of the maxima of i from one and rank + 1 - i from the other.
        """
        least: Shifted | None = None
        for from_a in range(max(0, rank + 1 - len(b)), min(len(a), rank + 1) + 1):
            from_b = rank + 1 - from_a
            if from_a and from_b:
                _, largest = self.compared(a[from_a - 1], b[from_b - 1])
            elif from_a:
                largest = a[from_a - 1]
            else:
                largest = b[from_b - 1]
            if least is None:
                least = largest
            else:
                least, _ = self.compared(least, largest)
        assert least is not None
        return least


@lru_cache(maxsize=16)
def _program(s0: int, s1: int, s2: int, pitch: int) -> tuple[np.ndarray, int, int, int, int]:
    """Return the argument of `run_program` for a box's middle value, with lines that far apart."""
    network = _Network(s0)
    column = network.sorted([Shifted(plane) for plane in range(s0)])
    plane = network.neighbours(column, pitch)(s1)
    rank = s0 * s1 * s2 // 2
    if s2 == 1:
        return _scheduled(network, s0, plane[rank])
    planes = network.neighbours(plane, 1)
    half = _half(s2)
    middle = network.middle(planes(half), _moved(planes(s2 - half), half), rank)
    return _scheduled(network, s0, middle)


def _scheduled(
    network: _Network, inputs: int, result: Shifted
) -> tuple[np.ndarray, int, int, int, int]:
    """Leave out what is not needed, and let new numbers replace those that are needed no more."""
    extents = {result.number: result.shift}
    last_use = {result.number: len(network.comparisons)}
    kept = []
    for index, (low, high, a, b) in reversed(list(enumerate(network.comparisons))):
        if low not in extents and high not in extents:
            continue
        extent = max(extents.get(low, 0), extents.get(high, 0))
        for operand in (a, b):
            operand_extent = extents.get(operand.number, 0)
            extents[operand.number] = max(operand_extent, extent + operand.shift)
            last_use.setdefault(operand.number, index)
        kept.append((index, low, high, a, b, extent))

    # The slot of each number, and slots whose numbers are needed no more.
    slots = {number: number for number in range(inputs)}
    num_slots = inputs
    free: list[int] = []
    steps = []
    for index, low, high, a, b, extent in reversed(kept):
        for number in (low, high):
            if not free:
                free.append(num_slots)
                num_slots += 1
            slots[number] = free.pop()
        operands = [slots[a.number], a.shift, slots[b.number], b.shift]
        steps.append([slots[low], slots[high], *operands, extent])
        done = {number for number in (a.number, b.number) if last_use[number] == index}
        done |= {low, high} - extents.keys()
        free += [slots[number] for number in sorted(done)]
    table = np.array(steps, np.int64).reshape(-1, 7)
    return table, inputs, num_slots, slots[result.number], result.shift


@inlined
def _whole(n: Any) -> Any:
    """Return a count of numbers, rounded up to whole vectors."""
    return (n + (_VECTORS - 1)) & -_VECTORS


@kernel("void(float32[:,:,::1], float32[:,:,::1], int64[:,::1], int64, int64, int64, int64)")
def run_program(
    source: Any,
    destination: Any,
    steps: Any,
    planes: Any,
    places: Any,
    result: Any,
    result_shift: Any,
) -> None:
    """Compare lines of numbers, step by step.

    Args:
        source, destination: the first is longer, by what a box has more than one voxel.
        steps: (steps, 7): places of the lesser and of the greater numbers; place and shift of one
            operand and of the other; how many voxels more than the output's are made.
        planes: of a box, which take the first places. places: how many lines are kept at a time.
        result, result_shift: place and shift of the middle value.
    """
    n0, n1, n2 = destination.shape
    pitch = source.shape[2]
    size = source.shape[1] * source.shape[2]
    extra = size - (n1 - 1) * pitch - n2  # what boxes reach over
    voxels = source.reshape(-1)
    lines = min(n1, max(1, _BLOCK // pitch))
    # Room for whole vectors, also where a line is read at a shift; and no multiple of a page, or
    # the lines would push each other out of the first-level cache.
    width = _whole((lines - 1) * pitch + n2 + extra) + _VECTORS + 16
    numbers = np.zeros(places * width + _VECTORS * 8, np.uint32)
    for i in range(n0):
        for j in range(0, n1, lines):
            together = min(lines, n1 - j)
            for a in range(planes):
                start = (i + a) * size + j * pitch
                to = a * width
                for k in range((together - 1) * pitch + n2 + extra):
                    numbers[to + k] = key_of(voxels[start + k])
            for t in range(steps.shape[0]):
                n = _whole((together - 1) * pitch + n2 + steps[t, 6])
                one = numbers[steps[t, 2] * width + steps[t, 3] :][:n]
                other = numbers[steps[t, 4] * width + steps[t, 5] :][:n]
                less = numbers[steps[t, 0] * width :][:n]
                greater = numbers[steps[t, 1] * width :][:n]
                for k in range(n):
                    x = one[k]
                    y = other[k]
                    less[k] = x if x < y else y
                    greater[k] = y if x < y else x
            at = result * width + result_shift
            for line in range(together):
                out = destination[i, j + line]
                first = np.uint64(at + line * pitch)
                for k in range(np.uint64(n2)):
                    out[k] = value_of(numbers[first + k])
