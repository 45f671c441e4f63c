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

# Voxels that are worked on together: whole lines, few enough to stay in the first-level cache.
_BLOCK = 512
# Numbers that an unrolled loop of vectors takes at once. Loops run over multiples of it, since what
# is left over would be done one by one.
_VECTORS = 64


def median_filter(volume: np.ndarray, box: tuple[int, int, int], out: np.ndarray) -> None:
    """Write the middle value of each box of a float32 volume (X, Y, Z).

    It is the upper one of two if their number is even.

    A box of s voxels begins s // 2 before its voxel. It reaches beyond the volume into its mirror
    image about the outermost voxels' outer faces, as SciPy's do. The result may be the volume
    itself.
    """
    # `padded` makes a copy, so that the result may be written to the volume itself.
    source = padded(volume, [(n // 2, n - 1 - n // 2) for n in box], "symmetric")
    run_program(source, out, *_program(*box, source.shape[2]))


class Shifted(NamedTuple):
    """A line of numbers, read some voxels further on.

    Attributes:
        number: of the line.
        shift: in voxels.
    """

    number: int
    shift: int = 0


def _moved(numbers: list[Shifted], shift: int) -> list[Shifted]:
    """Return the sorted list of boxes that lie further on, in voxels, from that of some boxes."""
    return [Shifted(number.number, number.shift + shift) for number in numbers]


def _half(size: int) -> int:
    """Return the largest power of two below the number."""
    return 1 << (size - 1).bit_length() - 1


class _ComparatorNetwork:
    """A network of comparators, which are added one by one.

    Each comparator turns two numbers into two new ones, their minimum and their maximum.

    Args:
        num_inputs: how many numbers there are at first.

    Attributes:
        count: how many numbers there are by now.
        comparisons: (index of the minimum, index of the maximum, first operand, second operand).
    """

    def __init__(self, num_inputs: int) -> None:
        self.count = num_inputs
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
        if not a:
            return b
        if not b:
            return a
        if len(a) == len(b) == 1:
            return list(self.compared(a[0], b[0]))
        # The least is the first of the even ones; then the n-th odd one against the next even one.
        even = self.merged(a[::2], b[::2])
        odd = self.merged(a[1::2], b[1::2])
        result = [even[0]]
        for odd_number, even_number in zip(odd, even[1:], strict=False):
            result += self.compared(odd_number, even_number)
        # If one list is longer, its last numbers have no partner: they are the greatest.
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
    """Return the last five arguments of `run_program` for a box's middle value.

    Args:
        s0, s1, s2: the box's voxels along the axes.
        pitch: voxels from one line of a plane to the next.
    """
    network = _ComparatorNetwork(s0)
    column = network.sorted([Shifted(plane) for plane in range(s0)])
    plane = network.neighbours(column, pitch)(s1)
    rank = s0 * s1 * s2 // 2
    if s2 == 1:
        return _scheduled(network, s0, plane[rank])
    # The last merge is not made as a whole, since only one number of its result is needed.
    planes = network.neighbours(plane, 1)
    half = _half(s2)
    other_half = _moved(planes(s2 - half), half)
    middle = network.middle(planes(half), other_half, rank)
    return _scheduled(network, s0, middle)


def _scheduled(
    network: _ComparatorNetwork, num_inputs: int, result: Shifted
) -> tuple[np.ndarray, int, int, int, int]:
    """Leave out what is not needed, and let new numbers replace those that are needed no more.

    Args:
        network: all comparisons.
        num_inputs: how many numbers there were at first.
        result: the number that is wanted.

    Returns:
        As `_program`.
    """
    # From the last comparison to the first: whether a number is needed is known from those after
    # it, and so is how many voxels beyond the output's are read of it, its extent.
    extents = {result.number: result.shift}
    last_use = {result.number: len(network.comparisons)}
    kept = []
    for index in range(len(network.comparisons) - 1, -1, -1):
        low, high, a, b = network.comparisons[index]
        if low not in extents and high not in extents:
            continue
        extent = max(extents.get(low, 0), extents.get(high, 0))
        for operand in (a, b):
            operand_extent = extents.get(operand.number, 0)
            extents[operand.number] = max(operand_extent, extent + operand.shift)
            last_use.setdefault(operand.number, index)
        kept.append((index, low, high, a, b, extent))

    # The slot of each number, and slots whose numbers are needed no more.
    slots = {number: number for number in range(num_inputs)}
    num_slots = num_inputs
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
        # Slots become free after an operand's last use, and where no step reads a result.
        done = {number for number in (a.number, b.number) if last_use[number] == index}
        done |= {low, high} - extents.keys()
        free += [slots[number] for number in sorted(done)]
    # A box of one voxel needs no step, and its empty table must have two dimensions, too.
    table = np.array(steps, np.int64).reshape(-1, 7)
    return table, num_inputs, num_slots, slots[result.number], result.shift


@inlined
def _whole(n: Any) -> Any:
    """Return a count of numbers, rounded up to whole vectors."""
    return (n + (_VECTORS - 1)) & -_VECTORS


@kernel("void(float32[:,:,::1], float32[:,:,::1], int64[:,::1], int64, int64, int64, int64)")
def run_program(
    source: Any,
    destination: Any,
    steps: Any,
    num_planes: Any,
    num_slots: Any,
    result: Any,
    result_shift: Any,
) -> None:
    """Compare lines of numbers, step by step.

    Args:
        source: (X, Y, Z), longer than the destination by the voxels of a box but one.
        destination: (X, Y, Z).
        steps: (steps, 7): slots of the lesser and of the greater numbers; slot and shift of the
            first operand and of the second; how many voxels more than the output's are made.
        num_planes: of a box; they take the first slots.
        num_slots: how many lines are kept at a time.
        result: the middle value's slot.
        result_shift: in voxels.
    """
    n0, n1, n2 = destination.shape
    # The lines of a plane are processed as one long line; values between them are not used.
    pitch = source.shape[2]
    plane_size = source.shape[1] * source.shape[2]
    # How far a box reaches over its first voxel within a plane.
    extra = plane_size - (n1 - 1) * pitch - n2
    voxels = source.reshape(-1)
    lines = min(n1, max(1, _BLOCK // pitch))
    # Room for whole vectors, also where a line is read at a shift; and no multiple of a page, or
    # the lines would push each other out of the first-level cache.
    width = _whole((lines - 1) * pitch + n2 + extra) + _VECTORS + 16
    numbers = np.zeros(num_slots * width + _VECTORS * 8, np.uint32)
    for i in range(n0):
        for j in range(0, n1, lines):
            num_lines = min(lines, n1 - j)
            length = (num_lines - 1) * pitch + n2
            for plane in range(num_planes):
                plane_start = (i + plane) * plane_size + j * pitch
                slot_start = plane * width
                for k in range(length + extra):
                    numbers[slot_start + k] = key_of(voxels[plane_start + k])
            for step in range(steps.shape[0]):
                n = _whole(length + steps[step, 6])
                first = numbers[steps[step, 2] * width + steps[step, 3] :][:n]
                second = numbers[steps[step, 4] * width + steps[step, 5] :][:n]
                lesser = numbers[steps[step, 0] * width :][:n]
                greater = numbers[steps[step, 1] * width :][:n]
                for k in range(n):
                    # Both are read before one is written: a new number may replace an operand.
                    x = first[k]
                    y = second[k]
                    lesser[k] = x if x < y else y
                    greater[k] = y if x < y else x
            result_start = result * width + result_shift
            for line in range(num_lines):
                out = destination[i, j + line]
                # Unsigned: a signed index would be tested for its sign.
                line_start = np.uint64(result_start + line * pitch)
                for k in range(np.uint64(n2)):
                    out[k] = value_of(numbers[line_start + k])
