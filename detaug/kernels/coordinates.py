"""The map of a row of an output patch into the source, and the voxels outside of that.

A patch voxel (i, j, k) lies at ``matrix @ ((i, j, k) + displacement) + offset`` in source voxels
(voxel centres are at integers). Two-dimensional arrays have a first axis of one voxel, which is
never interpolated along.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from detaug.kernels.compiling import inlined

# How values between voxels are made, and what lies outside the source.
NEAREST = 0
LINEAR = 1
CUBIC = 2
CONSTANT = 0
BORDER = 1

_CUBIC = -0.75  # Keys' parameter as torch's grid_sample has it


# A row is worked on in pieces of at most this length.
PIECE = 512
# Scratch arrays are flat, their parts this far apart. A constant distance lets the compiler see
# that they do not overlap, and use vectors; no multiple of 512, or the parts would push each other,
# and the source's voxels, out of the first-level cache.
PITCH = 640
# Planes that are worked on together.
BAND = 16

# What `layout` has behind the three extents.
LINE = 3
PLANE = 4
ORIGIN = 5


def layout(space: Sequence[int], starts: Sequence[int], window: Sequence[int]) -> np.ndarray:
    """Return the layout of a volume of which only a flat window is there.

    It is for kernels that are handed the window.

    Args:
        space: three extents of the volume.
        starts, window: three numbers each, the window's first voxel and its extents.

    Returns:
        (6,) int64: the extents of the volume; how far a step along the second axis is, and one
            along the first; and what
        to take off the index of a voxel of the volume.
    """
    line = window[2]
    plane = window[1] * window[2]
    return np.array(
        [*space, line, plane, starts[0] * plane + starts[1] * line + starts[2]], np.int64
    )


class Map(NamedTuple):
    """The patch's map into the source.

    Attributes:
        matrix, offset: (3, 3) and (3,) float64.
        displacement: (3, *patch), or of no elements: a straight map.
    """

    matrix: Any
    offset: Any
    displacement: Any


class Sampling(NamedTuple):
    """The way in which a source is read.

    Attributes:
        shape: (6,), where a window lies in its volume, from `layout`.
        mode, padding: the constants above.
        flat: two-dimensional (``shape[0] == 1``): the first axis does not count.
    """

    shape: Any
    mode: Any
    padding: Any
    flat: Any


@inlined
def row_of(number: Any, planes: Any, lines: Any) -> Any:
    """Return the plane and the line of row `number`, in the order in which rows are computed.

    Rows are computed in bands of `BAND` planes: line 0 of each plane of the band, then line 1 of
    each, and so on. In a rotated volume these rows read the same lines of the source, which are
    then still in the CPU's cache.
    """
    begin = number // (BAND * lines) * BAND
    band = min(BAND, planes - begin)
    rest = number % (BAND * lines)
    return begin + rest % band, rest // band


@inlined
def place_piece(
    rows: Any, patch_map: Any, i: Any, j: Any, begin: Any, length: Any, sampling: Any, voxels: Any
) -> tuple[Any, Any, Any, Any]:
    """Write the coordinates of a piece of row (i, j), and part it by how its voxels are read.

    Returns:
        ``start, stop, low, high``: voxels ``start ... stop`` (excluded) have all their neighbours
            inside the source and may
        be read in pairs; beyond ``low ... high`` no voxel has a neighbour inside. The rest is
            summed tap by tap.
    """
    shape, mode, padding, flat = sampling
    straight = patch_map.displacement.size == 0
    # A cubic kernel draws on one voxel more at either side.
    margin = 1 if mode == CUBIC else 0
    place_row(rows, patch_map, i, j, begin, length)
    low = 0
    high = length
    # A bent piece may come back.
    if straight & (padding == CONSTANT):
        low, high = _touching_part(rows, length, shape, margin, flat)
    start = 0
    stop = 0
    # Pairs are found by 32-bit indices, and an axis of one voxel has none.
    few = 1 + 2 * margin
    if (voxels < 2**31) & (shape[1] > few) & (shape[2] > few) & (flat | (shape[0] > few)):
        if (padding != CONSTANT) & (mode == LINEAR):
            _bring_inside(rows, length, shape, flat)
        start, stop = _inner_part(rows, length, shape, margin, flat, straight)
    start = max(start, low)
    stop = min(stop, high)
    if stop <= start:
        start = stop = low
    return start, stop, low, high


@inlined
def place_row(rows: Any, patch_map: Any, i: Any, j: Any, start: Any, length: Any) -> None:
    """Write the coordinates of a piece of row (i, j): x, y, z in the parts of ``rows``, float64."""
    matrix, offset, displacement = patch_map
    bx = offset[0] + (matrix[0, 0] * i + matrix[0, 1] * j)
    by = offset[1] + (matrix[1, 0] * i + matrix[1, 1] * j)
    bz = offset[2] + (matrix[2, 0] * i + matrix[2, 1] * j)
    mx = matrix[0, 2]
    my = matrix[1, 2]
    mz = matrix[2, 2]
    for k in range(length):
        step = np.float64(np.int32(start + k))
        rows[k] = bx + step * mx
        rows[PITCH + k] = by + step * my
        rows[2 * PITCH + k] = bz + step * mz
    if displacement.size > 0:
        u = displacement[0, i, j, start : start + length]
        v = displacement[1, i, j, start : start + length]
        w = displacement[2, i, j, start : start + length]
        for axis in range(3):
            a = matrix[axis, 0]
            b = matrix[axis, 1]
            c = matrix[axis, 2]
            row = rows[axis * PITCH : axis * PITCH + length]
            for k in range(length):
                row[k] += a * np.float64(u[k]) + (b * np.float64(v[k]) + c * np.float64(w[k]))


@inlined
def _inner_part(rows: Any, length: Any, shape: Any, margin: Any, flat: Any, straight: Any) -> Any:
    """Return the part ``start, stop`` of a piece whose voxels all lie within the source.

    They lie between voxels of the source that are ``margin`` voxels or more from its border. The
    part is ``0, 0`` if it is not one stretch. ``flat``: the first axis does not count.
    ``straight``: the piece is a straight line (no displacement).
    """
    least = np.float64(margin)
    limit_x = np.float64(shape[0] - 1 - margin)
    limit_y = np.float64(shape[1] - 1 - margin)
    limit_z = np.float64(shape[2] - 1 - margin)
    start = 0
    stop = length
    while start < stop and _is_outside(rows, start, least, limit_x, limit_y, limit_z, flat):
        start += 1
    while stop > start and _is_outside(rows, stop - 1, least, limit_x, limit_y, limit_z, flat):
        stop -= 1
    if not straight:
        outside = np.int32(0)
        for k in range(start, stop):
            outside += np.int32(_is_outside(rows, k, least, limit_x, limit_y, limit_z, flat))
        if outside > 0:
            return 0, 0
    return start, stop


@inlined
def _is_outside(
    rows: Any, k: Any, least: Any, limit_x: Any, limit_y: Any, limit_z: Any, flat: Any
) -> Any:
    """Return True for a coordinate that is outside of the source along an axis."""
    y = rows[PITCH + k]
    z = rows[2 * PITCH + k]
    bad = (y < least) | (y > limit_y) | (z < least) | (z > limit_z)
    if not flat:
        bad |= (rows[k] < least) | (rows[k] > limit_x)
    return bad


@inlined
def _nearest_inside(p: Any, size: Any) -> Any:
    """Return the coordinate within the source that is nearest to one along an axis."""
    return min(max(p, 0.0), np.float64(size - 1))


@inlined
def _bring_inside(rows: Any, length: Any, shape: Any, flat: Any) -> None:
    """Apply `_nearest_inside` to a whole piece."""
    for axis in range(1 if flat else 0, 3):
        row = rows[axis * PITCH : axis * PITCH + length]
        for k in range(length):
            row[k] = _nearest_inside(row[k], shape[axis])


@inlined
def touches_nothing(rows: Any, k: Any, shape: Any, margin: Any, flat: Any) -> Any:
    """Return True if no neighbour of a voxel is inside the source.

    ``margin``: the number of neighbours beyond the nearest that count.
    """
    y = rows[PITCH + k]
    z = rows[2 * PITCH + k]
    least = np.float64(-1 - margin)
    nothing = (
        (y <= least)
        | (y >= np.float64(shape[1] + margin))
        | (z <= least)
        | (z >= np.float64(shape[2] + margin))
    )
    if not flat:
        nothing |= (rows[k] <= least) | (rows[k] >= np.float64(shape[0] + margin))
    return nothing


@inlined
def _touching_part(rows: Any, length: Any, shape: Any, margin: Any, flat: Any) -> Any:
    """Return the part ``low, high`` of a straight piece outside of which no voxel is inside.

    That is, no voxel has a neighbour inside the source.
    """
    low = 0
    high = length
    while low < high and touches_nothing(rows, low, shape, margin, flat):
        low += 1
    while high > low and touches_nothing(rows, high - 1, shape, margin, flat):
        high -= 1
    return low, high


@inlined
def split_piece(rows: Any, count: Any, shape: Any, flat: Any, index: Any, rest: Any) -> None:
    """Write the index of the lowest neighbour and the three fractions of a piece's voxels.

    All neighbours of these are inside.
    """
    # All are float64, which holds every index exactly: a coordinate is rounded down as it is, and
    # only the index becomes an integer. To make integers of the coordinates, and numbers of these,
    # took a third of the time.
    plane = np.float64(shape[PLANE])
    line = np.float64(shape[LINE])
    origin = np.float64(shape[ORIGIN])
    last_x = np.float64(shape[0] - 2)
    last_y = np.float64(shape[1] - 2)
    last_z = np.float64(shape[2] - 2)
    if flat:
        for k in range(count):
            y = rows[PITCH + k]
            z = rows[2 * PITCH + k]
            iy = min(np.floor(y), last_y)
            iz = min(np.floor(z), last_z)
            rest[PITCH + k] = np.float32(y - iy)
            rest[2 * PITCH + k] = np.float32(z - iz)
            index[k] = np.int32(iy * line + (iz - origin))
        return
    for k in range(count):
        x = rows[k]
        y = rows[PITCH + k]
        z = rows[2 * PITCH + k]
        ix = min(np.floor(x), last_x)
        iy = min(np.floor(y), last_y)
        iz = min(np.floor(z), last_z)
        rest[k] = np.float32(x - ix)
        rest[PITCH + k] = np.float32(y - iy)
        rest[2 * PITCH + k] = np.float32(z - iz)
        index[k] = np.int32(ix * plane + (iy * line + (iz - origin)))


@inlined
def split_straight(
    patch_map: Any,
    i: Any,
    j: Any,
    begin: Any,
    length: Any,
    shape: Any,
    flat: Any,
    index: Any,
    rest: Any,
) -> Any:
    """Do the work of `place_row` and `split_piece` for a piece of a straight map.

    The volume has fewer than 2**31 voxels. False, and nothing done, where the piece does not lie
    within the source.

    Most pieces do. Rounded as they are, the coordinates along a straight piece lie between those of
    its ends.
    """
    matrix, offset, _ = patch_map
    bx = offset[0] + (matrix[0, 0] * i + matrix[0, 1] * j)
    by = offset[1] + (matrix[1, 0] * i + matrix[1, 1] * j)
    bz = offset[2] + (matrix[2, 0] * i + matrix[2, 1] * j)
    mx = matrix[0, 2]
    my = matrix[1, 2]
    mz = matrix[2, 2]
    plane = np.float64(shape[PLANE])
    line = np.float64(shape[LINE])
    origin = np.float64(shape[ORIGIN])
    last_x = np.float64(shape[0] - 1)
    last_y = np.float64(shape[1] - 1)
    last_z = np.float64(shape[2] - 1)
    for end in (begin, begin + length - 1):
        step = np.float64(np.int32(end))
        x = bx + step * mx
        y = by + step * my
        z = bz + step * mz
        if (
            not (flat | (x >= 0.0) & (x < last_x))
            & (y >= 0.0)
            & (y < last_y)
            & (z >= 0.0)
            & (z < last_z)
        ):
            return False
    for k in range(np.uint64(length)):  # unsigned: a signed index would be tested for its sign
        step = np.float64(np.int32(np.uint64(begin) + k))
        x = bx + step * mx
        y = by + step * my
        z = bz + step * mz
        ix = np.floor(x)
        iy = np.floor(y)
        iz = np.floor(z)
        rest[k] = np.float32(x - ix)
        rest[np.uint64(PITCH) + k] = np.float32(y - iy)
        rest[np.uint64(2 * PITCH) + k] = np.float32(z - iz)
        index[k] = np.int32(ix * plane + (iy * line + (iz - origin)))
    return True


@inlined
def place_axes(patch_map: Any, extents: Any, shape: Any, flat: Any, low: Any, part: Any) -> Any:
    """Write lower neighbours and fractions along each axis of a patch that is scaled, not turned.

    False where a voxel has no two neighbours.
    """
    matrix, offset, _ = patch_map
    is_inside: Any = True
    for axis in range(1 if flat else 0, 3):
        for other in range(3):
            is_inside &= (other == axis) | (matrix[axis, other] == 0.0)
        last = np.float64(shape[axis] - 1)
        is_inside &= last > 0.0
        for k in range(extents[axis]):
            p = offset[axis] + np.float64(k) * matrix[axis, axis]
            is_inside &= (p >= 0.0) & (p <= last)
            base = min(np.floor(p), last - 1.0)
            low[axis, k] = np.int64(base)
            part[axis, k] = np.float32(p - base)
    return is_inside


@inlined
def tap_piece(rows: Any, length: Any, sampling: Any, index: Any, weight: Any) -> Any:
    """Write the voxels that a piece's samples draw on, and their weights; return their number.

    It is the number along each axis.

    Tap n along an axis of voxel k is at ``(4 * axis + n) * PITCH + k`` of ``index`` and ``weight``.
    An index of -1 is a voxel outside (constant border).
    """
    shape, mode, padding, flat = sampling
    count = 4 if mode == CUBIC else (1 if mode == NEAREST else 2)
    for axis in range(3):
        size = shape[axis]
        for k in range(length):
            p = 0.0 if flat & (axis == 0) else rows[axis * PITCH + k]
            at = 4 * axis * PITCH + k
            if mode == CUBIC:
                base = np.floor(p)
                t = p - base
                weight[at] = _cubic_far(t + 1.0)
                weight[at + PITCH] = _cubic_near(t)
                weight[at + 2 * PITCH] = _cubic_near(1.0 - t)
                weight[at + 3 * PITCH] = _cubic_far(2.0 - t)
                for n in range(4):
                    index[at + n * PITCH] = _tap(base + np.float64(n - 1), size)
            else:
                if padding != CONSTANT:
                    p = _nearest_inside(p, size)
                if mode == NEAREST:
                    index[at] = _tap(nearest_voxel(p), size)
                    weight[at] = 1.0
                else:
                    base = np.floor(p)
                    index[at] = _tap(base, size)
                    index[at + PITCH] = _tap(base + 1.0, size)
                    weight[at] = 1.0 - (p - base)
                    weight[at + PITCH] = p - base
    return count


@inlined
def nearest_voxel(p: Any) -> Any:
    """Return the voxel that is nearest to a coordinate, as a float.

    Half-way between two it is the one with the even number, as in torch's grid_sample: always the
    upper one would shift a patch that lies half a voxel off its source by half a voxel. Compared,
    and not left to a rounding mode.
    """
    upper = np.floor(p + 0.5)
    half = 0.5 * upper
    return upper - 1.0 if (upper - p == 0.5) & (np.floor(half) != half) else upper


@inlined
def _tap(p: Any, size: Any) -> Any:
    return np.int64(p) if (p >= 0.0) & (p < np.float64(size)) else np.int64(-1)


@inlined
def _cubic_near(t: Any) -> Any:
    return ((_CUBIC + 2.0) * t - (_CUBIC + 3.0)) * t * t + 1.0


@inlined
def _cubic_far(t: Any) -> Any:
    return ((_CUBIC * t - 5.0 * _CUBIC) * t + 8.0 * _CUBIC) * t - 4.0 * _CUBIC
