"""The coordinates of a patch's rows in the source, and the voxels that are read there.

A patch voxel (i, j, k) lies at ``matrix @ ((i, j, k) + displacement) + offset`` in source voxels
(voxel centres are at integers). A plane is a volume whose first axis has one voxel, which is never
interpolated along.

Rows are worked on in pieces, whose voxels are of three kinds. Those whose neighbours are all inside
the source are interpolated with vectors. Those with some neighbours outside are summed neighbour by
neighbour; such neighbours are called taps. Those with none inside have the value of the outside.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from detaug.kernels.compiling import inlined

# How values between voxels are made.
NEAREST = 0
LINEAR = 1
CUBIC = 2
# What lies outside the source: one value, or the nearest voxel inside.
CONSTANT = 0
BORDER = 1

# Keys' parameter as torch's grid_sample has it.
_KEYS = -0.75

# Voxels: a row is worked on in pieces of at most this length.
PIECE = 512
# Scratch arrays of a piece are flat, their parts this far apart. A constant distance lets the
# compiler see that they do not overlap, and use vectors. It is no multiple of 512: else the parts
# would push each other, and the source's voxels, out of the first-level cache.
PITCH = 640
# The most taps along an axis: those of a cubic kernel.
MOST_TAPS = 4
# Planes that are worked on together.
BAND = 16

# What `layout` has after the three extents.
LINE = 3
PLANE = 4
ORIGIN = 5


def layout(space: Sequence[int], starts: Sequence[int], window: Sequence[int]) -> np.ndarray:
    """Return the layout of a volume of which a kernel gets only a window, as flat memory.

    Args:
        space: three extents of the volume.
        starts: the window's first voxel, three numbers.
        window: the window's extents, three numbers.

    Returns:
        (6,) int64: the volume's extents; how far apart neighbours along its second axis lie in
        memory, and those along its first; and how many voxels after the volume's first one the
        window would begin in such memory.
    """
    line = window[2]
    plane = window[1] * window[2]
    origin = starts[0] * plane + starts[1] * line + starts[2]
    return np.array([*space, line, plane, origin], np.int64)


class Map(NamedTuple):
    """The patch's map into the source.

    Attributes:
        matrix: (3, 3) float64.
        offset: (3,) float64.
        displacement: (3, *patch) float32. A straight map has none: no elements.
    """

    matrix: Any
    offset: Any
    displacement: Any


class Sampling(NamedTuple):
    """The way in which a source is read.

    Attributes:
        shape: (6,), where a window lies in its volume, from `layout`.
        mode: `NEAREST`, `LINEAR` or `CUBIC`.
        padding: `CONSTANT` or `BORDER`.
        is_flat: the source is a plane: its first axis does not count.
    """

    shape: Any
    mode: Any
    padding: Any
    is_flat: Any


class Piece(NamedTuple):
    """A part of the patch's row (i, j).

    Attributes:
        i: the row's plane.
        j: the row's line in that plane.
        first: the piece's first voxel along the row.
        length: voxels, at most `PIECE`.
    """

    i: Any
    j: Any
    first: Any
    length: Any


class Parts(NamedTuple):
    """A piece's voxels by kind, counted from its first one; stops are excluded.

    Attributes:
        start, stop: voxels between these have all their neighbours inside the source.
        low, high: voxels before the first and from the second on have no neighbour inside; those
            that are left have some.
    """

    start: Any
    stop: Any
    low: Any
    high: Any


@inlined
def row_of(number: Any, num_planes: Any, num_lines: Any) -> Any:
    """Return the plane and the line of row `number`, in the order in which rows are computed.

    Rows are computed in bands of `BAND` planes: line 0 of each plane of the band, then line 1 of
    each, and so on. In a rotated volume these rows read the same lines of the source, which are
    then still in the CPU's cache.
    """
    # Only the last band may be incomplete, so that the number gives the band.
    first_plane = number // (BAND * num_lines) * BAND
    band = min(BAND, num_planes - first_plane)
    number_in_band = number % (BAND * num_lines)
    return first_plane + number_in_band % band, number_in_band // band


@inlined
def locate_piece(
    points: Any, patch_map: Any, piece: Any, sampling: Any, num_voxels: Any
) -> tuple[Any, Any, Any, Any]:
    """Write the coordinates of a piece's voxels in the source, and return its `Parts`.

    Args:
        points: float64, the coordinates along each axis in a part of their own. With a border
            they are brought inside.
        patch_map: a `Map`.
        piece: a `Piece`.
        sampling: a `Sampling`.
        num_voxels: of the source's window.
    """
    shape, mode, padding, is_flat = sampling
    length = piece.length
    is_straight = patch_map.displacement.size == 0
    # A cubic kernel draws on one voxel more at either side.
    margin = 0
    if mode == CUBIC:
        margin = 1
    locate_row(points, patch_map, piece)
    low = 0
    high = length
    # Only a straight piece enters the source once and leaves it once.
    if is_straight & (padding == CONSTANT):
        low, high = _touching_part(points, length, shape, margin, is_flat)
    start = 0
    stop = 0
    # Inner voxels are read in pairs, by 32-bit indices, and an axis of few voxels has no pairs.
    few = 1 + 2 * margin
    is_long = (shape[1] > few) & (shape[2] > few) & (is_flat | (shape[0] > few))
    if (num_voxels < 2**31) & is_long:
        if (padding == BORDER) & (mode == LINEAR):
            _bring_inside(points, length, shape, is_flat)
        start, stop = _inner_part(points, length, shape, margin, is_flat, is_straight)
    start = max(start, low)
    stop = min(stop, high)
    # Without inner voxels, all from low to high belong to the end after them.
    if stop <= start:
        start = low
        stop = low
    return start, stop, low, high


@inlined
def locate_row(points: Any, patch_map: Any, piece: Any) -> None:
    """Write the coordinates of a piece's voxels in the source: x, y, z in the parts of `points`."""
    matrix, offset, displacement = patch_map
    i, j, first, length = piece
    # What does not change along the row is summed first, and then the step is multiplied: a sum of
    # steps would be rounded at each voxel.
    row_x = offset[0] + (matrix[0, 0] * i + matrix[0, 1] * j)
    row_y = offset[1] + (matrix[1, 0] * i + matrix[1, 1] * j)
    row_z = offset[2] + (matrix[2, 0] * i + matrix[2, 1] * j)
    step_x = matrix[0, 2]
    step_y = matrix[1, 2]
    step_z = matrix[2, 2]
    for k in range(length):
        # By way of int32, which older CPUs convert with vectors, unlike int64.
        distance = np.float64(np.int32(first + k))
        points[k] = row_x + distance * step_x
        points[PITCH + k] = row_y + distance * step_y
        points[2 * PITCH + k] = row_z + distance * step_z
    if displacement.size > 0:
        u = displacement[0, i, j, first : first + length]
        v = displacement[1, i, j, first : first + length]
        w = displacement[2, i, j, first : first + length]
        for axis in range(3):
            a = matrix[axis, 0]
            b = matrix[axis, 1]
            c = matrix[axis, 2]
            along_axis = points[axis * PITCH : axis * PITCH + length]
            for k in range(length):
                in_plane = b * np.float64(v[k]) + c * np.float64(w[k])
                along_axis[k] += a * np.float64(u[k]) + in_plane


@inlined
def _inner_part(
    points: Any, length: Any, shape: Any, margin: Any, is_flat: Any, is_straight: Any
) -> Any:
    """Return the part ``start, stop`` of a piece whose voxels all lie within the source.

    It is ``0, 0`` if these are not one stretch.

    Args:
        points, length, shape, is_flat: as in `locate_piece`.
        margin: voxels that the neighbours of a voxel may be away from it, but for the nearest two.
        is_straight: the piece is a straight line (no displacement).
    """
    least = np.float64(margin)
    limit_x = np.float64(shape[0] - 1 - margin)
    limit_y = np.float64(shape[1] - 1 - margin)
    limit_z = np.float64(shape[2] - 1 - margin)
    start = 0
    stop = length
    while start < stop and _is_outside(points, start, least, limit_x, limit_y, limit_z, is_flat):
        start += 1
    while stop > start and _is_outside(points, stop - 1, least, limit_x, limit_y, limit_z, is_flat):
        stop -= 1
    if is_straight:
        return start, stop
    # A bent piece may leave the source and come back. Counted, and not left at the first one: a
    # loop without an exit uses vectors.
    num_outside = np.int32(0)
    for k in range(start, stop):
        num_outside += np.int32(_is_outside(points, k, least, limit_x, limit_y, limit_z, is_flat))
    if num_outside > 0:
        return 0, 0
    return start, stop


@inlined
def _is_outside(
    points: Any, k: Any, least: Any, limit_x: Any, limit_y: Any, limit_z: Any, is_flat: Any
) -> Any:
    """Return True for a voxel whose coordinate along an axis is below the least or above a limit.

    Joined by ``|`` and not by ``or``, here and below, since branches keep loops from vectors.
    """
    y = points[PITCH + k]
    z = points[2 * PITCH + k]
    is_outside = (y < least) | (y > limit_y) | (z < least) | (z > limit_z)
    if not is_flat:
        is_outside |= (points[k] < least) | (points[k] > limit_x)
    return is_outside


@inlined
def _nearest_inside(p: Any, size: Any) -> Any:
    """Return the coordinate within an axis of `size` voxels that is nearest to another one."""
    return min(max(p, 0.0), np.float64(size - 1))


@inlined
def _bring_inside(points: Any, length: Any, shape: Any, is_flat: Any) -> None:
    """Apply `_nearest_inside` to a whole piece."""
    for axis in range(1 if is_flat else 0, 3):
        along_axis = points[axis * PITCH : axis * PITCH + length]
        for k in range(length):
            along_axis[k] = _nearest_inside(along_axis[k], shape[axis])


@inlined
def has_no_tap_inside(points: Any, k: Any, shape: Any, margin: Any, is_flat: Any) -> Any:
    """Return True if no neighbour of a voxel is inside the source.

    Args:
        points, shape, is_flat: as in `locate_piece`.
        k: the voxel.
        margin: the number of neighbours beyond the nearest that count.
    """
    y = points[PITCH + k]
    z = points[2 * PITCH + k]
    least = np.float64(-1 - margin)
    is_outside = (y <= least) | (y >= np.float64(shape[1] + margin))
    is_outside |= (z <= least) | (z >= np.float64(shape[2] + margin))
    if not is_flat:
        is_outside |= (points[k] <= least) | (points[k] >= np.float64(shape[0] + margin))
    return is_outside


@inlined
def _touching_part(points: Any, length: Any, shape: Any, margin: Any, is_flat: Any) -> Any:
    """Return the part ``low, high`` of a straight piece that has neighbours inside the source."""
    low = 0
    high = length
    while low < high and has_no_tap_inside(points, low, shape, margin, is_flat):
        low += 1
    while high > low and has_no_tap_inside(points, high - 1, shape, margin, is_flat):
        high -= 1
    return low, high


@inlined
def split_points(
    points: Any, count: Any, shape: Any, is_flat: Any, lowest: Any, fractions: Any
) -> None:
    """Write the lowest neighbour of each voxel, and how far it lies from that along each axis.

    All neighbours are inside the source.

    Args:
        points, shape, is_flat: as in `locate_piece`.
        count: of voxels.
        lowest: (count,) int32, the neighbour's index in the source's memory.
        fractions: float32, from 0 to 1, those of each axis in a part of their own.
    """
    # All are float64, which holds every index exactly: a coordinate is rounded down as it is, and
    # only the index becomes an integer. To make integers of the coordinates, and numbers of these,
    # took a third of the time.
    plane = np.float64(shape[PLANE])
    line = np.float64(shape[LINE])
    origin = np.float64(shape[ORIGIN])
    # A point on the last voxel is between it and the one before it.
    last_x = np.float64(shape[0] - 2)
    last_y = np.float64(shape[1] - 2)
    last_z = np.float64(shape[2] - 2)
    if is_flat:
        for k in range(count):
            y = points[PITCH + k]
            z = points[2 * PITCH + k]
            floor_y = min(np.floor(y), last_y)
            floor_z = min(np.floor(z), last_z)
            fractions[PITCH + k] = np.float32(y - floor_y)
            fractions[2 * PITCH + k] = np.float32(z - floor_z)
            lowest[k] = np.int32(floor_y * line + (floor_z - origin))
        return
    for k in range(count):
        x = points[k]
        y = points[PITCH + k]
        z = points[2 * PITCH + k]
        floor_x = min(np.floor(x), last_x)
        floor_y = min(np.floor(y), last_y)
        floor_z = min(np.floor(z), last_z)
        fractions[k] = np.float32(x - floor_x)
        fractions[PITCH + k] = np.float32(y - floor_y)
        fractions[2 * PITCH + k] = np.float32(z - floor_z)
        lowest[k] = np.int32(floor_x * plane + (floor_y * line + (floor_z - origin)))


@inlined
def split_straight_piece(
    patch_map: Any, piece: Any, shape: Any, is_flat: Any, lowest: Any, fractions: Any
) -> Any:
    """Do the work of `locate_row` and `split_points` for a piece that lies within the source.

    Most pieces do. The coordinates' rounding is monotonic, so that along a straight piece they lie
    between those of its ends: two voxels tell about all.

    Args:
        patch_map: a straight `Map`, into a volume of fewer than 2**31 voxels.
        piece: a `Piece`.
        shape, is_flat, lowest, fractions: as in `split_points`.

    Returns:
        False, and nothing is written, where the piece does not lie within the source.
    """
    # Written out as in `locate_row`: a call would count the arrays' references for every piece.
    matrix, offset, _ = patch_map
    i, j, first, length = piece
    row_x = offset[0] + (matrix[0, 0] * i + matrix[0, 1] * j)
    row_y = offset[1] + (matrix[1, 0] * i + matrix[1, 1] * j)
    row_z = offset[2] + (matrix[2, 0] * i + matrix[2, 1] * j)
    step_x = matrix[0, 2]
    step_y = matrix[1, 2]
    step_z = matrix[2, 2]
    plane = np.float64(shape[PLANE])
    line = np.float64(shape[LINE])
    origin = np.float64(shape[ORIGIN])
    last_x = np.float64(shape[0] - 1)
    last_y = np.float64(shape[1] - 1)
    last_z = np.float64(shape[2] - 1)
    for end in (first, first + length - 1):
        distance = np.float64(np.int32(end))
        x = row_x + distance * step_x
        y = row_y + distance * step_y
        z = row_z + distance * step_z
        is_within = (y >= 0.0) & (y < last_y) & (z >= 0.0) & (z < last_z)
        if not is_flat:
            is_within &= (x >= 0.0) & (x < last_x)
        if not is_within:
            return False
    # Unsigned, here and in other kernels: a signed index would be tested for its sign.
    for k in range(np.uint64(length)):
        distance = np.float64(np.int32(np.uint64(first) + k))
        x = row_x + distance * step_x
        y = row_y + distance * step_y
        z = row_z + distance * step_z
        floor_x = np.floor(x)
        floor_y = np.floor(y)
        floor_z = np.floor(z)
        fractions[k] = np.float32(x - floor_x)
        fractions[np.uint64(PITCH) + k] = np.float32(y - floor_y)
        fractions[np.uint64(2 * PITCH) + k] = np.float32(z - floor_z)
        lowest[k] = np.int32(floor_x * plane + (floor_y * line + (floor_z - origin)))
    return True


@inlined
def split_axes(
    patch_map: Any, extents: Any, shape: Any, is_flat: Any, lowest: Any, fractions: Any
) -> Any:
    """Write, along each axis, the lower neighbour of each voxel of a patch that is scaled only.

    Args:
        patch_map: a straight `Map`.
        extents: three, of the patch.
        shape, is_flat: as in `locate_piece`.
        lowest: (3, longest extent) int64, indices along the axis.
        fractions: (3, longest extent) float32, how far the voxel lies from that neighbour.

    Returns:
        False where the patch is turned or sheared, or a voxel has no two neighbours inside.
    """
    matrix, offset, _ = patch_map
    is_scaled: Any = True
    for axis in range(1 if is_flat else 0, 3):
        for other_axis in range(3):
            is_scaled &= (other_axis == axis) | (matrix[axis, other_axis] == 0.0)
        last = np.float64(shape[axis] - 1)
        is_scaled &= last > 0.0
        for k in range(extents[axis]):
            # The same sum as in `locate_row`, without the terms that are 0 here.
            p = offset[axis] + np.float64(k) * matrix[axis, axis]
            is_scaled &= (p >= 0.0) & (p <= last)
            floor = min(np.floor(p), last - 1.0)
            lowest[axis, k] = np.int64(floor)
            fractions[axis, k] = np.float32(p - floor)
    return is_scaled


@inlined
def end_of_piece(parts: Any, end: Any) -> Any:
    """Return start and stop of the voxels with some neighbours outside, at one end of a piece.

    Args:
        parts: a piece's `Parts`.
        end: 0 for those before its inner voxels, 1 for those after them.
    """
    if end == 0:
        return parts.low, parts.start
    return parts.stop, parts.high


@inlined
def find_taps(points: Any, length: Any, sampling: Any, index: Any, weight: Any) -> Any:
    """Write the voxels that a piece's samples draw on, and their weights.

    Tap n of voxel k along an axis is at ``(MOST_TAPS * axis + n) * PITCH + k`` of both arrays.

    Args:
        points: as in `locate_piece`.
        length: of the piece, in voxels.
        sampling: a `Sampling`.
        index: int64, indices along the axis; -1 for a voxel outside (constant border).
        weight: float64.

    Returns:
        The number of taps along each axis.
    """
    shape, mode, padding, is_flat = sampling
    for axis in range(3):
        size = shape[axis]
        for k in range(length):
            p = points[axis * PITCH + k]
            # A plane has one voxel along its first axis, whatever the coordinate says.
            if is_flat & (axis == 0):
                p = 0.0
            first = MOST_TAPS * axis * PITCH + k
            if mode == CUBIC:
                floor = np.floor(p)
                t = p - floor
                weight[first] = _keys_beyond_1(t + 1.0)
                weight[first + PITCH] = _keys_within_1(t)
                weight[first + 2 * PITCH] = _keys_within_1(1.0 - t)
                weight[first + 3 * PITCH] = _keys_beyond_1(2.0 - t)
                for n in range(4):
                    index[first + n * PITCH] = _index_along(floor + np.float64(n - 1), size)
            elif mode == LINEAR:
                if padding == BORDER:
                    p = _nearest_inside(p, size)
                floor = np.floor(p)
                index[first] = _index_along(floor, size)
                index[first + PITCH] = _index_along(floor + 1.0, size)
                weight[first] = 1.0 - (p - floor)
                weight[first + PITCH] = p - floor
            else:
                index[first] = _index_along(nearest_voxel(p), size)
                weight[first] = 1.0
    if mode == CUBIC:
        return 4
    if mode == LINEAR:
        return 2
    return 1


@inlined
def nearest_voxel(p: Any) -> Any:
    """Return the voxel that is nearest to a coordinate, as a float.

    Half-way between two it is the one with the even number, as in torch's grid_sample: always the
    upper one would shift a patch that lies half a voxel off its source by half a voxel. Compared,
    and not left to a rounding mode.
    """
    upper = np.floor(p + 0.5)
    half = 0.5 * upper
    is_odd = np.floor(half) != half
    return upper - 1.0 if (upper - p == 0.5) & is_odd else upper


@inlined
def _index_along(p: Any, size: Any) -> Any:
    """Return a whole coordinate as an index along an axis of `size` voxels; -1 outside."""
    return np.int64(p) if (p >= 0.0) & (p < np.float64(size)) else np.int64(-1)


@inlined
def _keys_within_1(t: Any) -> Any:
    """Return Keys' kernel at a distance from 0 to 1: (a + 2) t³ - (a + 3) t² + 1."""
    return ((_KEYS + 2.0) * t - (_KEYS + 3.0)) * t * t + 1.0


@inlined
def _keys_beyond_1(t: Any) -> Any:
    """Return Keys' kernel at a distance from 1 to 2: a t³ - 5 a t² + 8 a t - 4 a."""
    return ((_KEYS * t - 5.0 * _KEYS) * t + 8.0 * _KEYS) * t - 4.0 * _KEYS
