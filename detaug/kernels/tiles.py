"""Tiles of a patch, which are worked on one after another where a straight map keeps them within the source.

Voxels of a turned patch that are neighbours lie near each other in the source, but not in one line of memory. A box of them
draws on fewer lines of the cache than long rows do, and these stay in the first-level cache until all of its voxels were read.
Where the lines of the next tile are, no CPU foresees: they are asked for while one tile is read.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from detaug.kernels.compiling import inlined, shared
from detaug.kernels.coordinates import FRACTIONS, LINE, LINEAR, ORIGIN, PLANE, STRIDE_AHEAD, has_pairs
from detaug.kernels.pointers import prefetch, prefetch_to_write

# A tile is so many planes deep, or fewer, and has so many lines of so many voxels in each of them.
DEPTH, LINES, LENGTH = 16, 8, 16
# The voxels of a plane of a tile, which are read in one go.
SHEET = LINES * LENGTH
VOXELS = DEPTH * SHEET  # of a tile: no more than `detaug.kernels.coordinates.FRACTIONS`

# A patch of fewer voxels is read from the second-level cache, row by row in less time.
_WORTH = 2**20


@inlined
def number_of(extent: Any, size: Any) -> Any:
    """How many parts of a size an extent has, the last one being shorter or reaching back into the one before."""
    return (extent + size - 1) // size


@inlined
def start_of(number: Any, extent: Any, size: Any) -> Any:
    """Where a part begins: the last one such that it ends where the extent does."""
    return max(min(number * size, extent - size), 0)


@shared
def is_tiled(
    patch_map: Any, i0: Any, i1: Any, j0: Any, j1: Any, size: Any, length: Any, sampling: Any, voxels: Any
) -> Any:
    """Whether rows ``j0`` to ``j1`` of planes ``i0`` to ``i1`` (both excluded) are worth tiles, and have all voxels between
    those of the source.

    Rounded as they are, coordinates grow or fall along each axis of the patch: the corners decide.
    """
    shape, mode, _, _, flat = sampling
    straight = (mode == LINEAR) & (patch_map.displacement.size == 0) & has_pairs(shape, 0, voxels, flat)
    if (not straight) | flat | (size < _WORTH) | (j1 - j0 < LINES) | (length < LENGTH):
        return False
    matrix, offset, _, _ = patch_map
    for axis in range(3):
        last = np.float64(shape[axis] - 1)
        for corner in range(8):
            i = i0 if corner & 4 else i1 - 1
            j = j0 if corner & 2 else j1 - 1
            k = np.float64(0 if corner & 1 else length - 1)
            place = offset[axis] + (matrix[axis, 0] * i + matrix[axis, 1] * j) + k * matrix[axis, 2]
            if not ((place >= 0.0) & (place < last)):
                return False
    return True


@inlined
def step_along(matrix: Any, k0: Any, steps: Any) -> None:
    """What the voxels of a line add to the place of its first one, along each axis: the same for all lines of a tile."""
    mx = matrix[0, 2]
    my = matrix[1, 2]
    mz = matrix[2, 2]
    for k in range(LENGTH):
        step = np.float64(np.int32(k0 + k))
        steps[k] = step * mx
        steps[LENGTH + k] = step * my
        steps[2 * LENGTH + k] = step * mz


@inlined
def place_tile(
    patch_map: Any, i0: Any, i1: Any, j0: Any, k0: Any, shape: Any, steps: Any, index: Any, rest: Any
) -> None:
    """Index of the lowest neighbour of each voxel of a tile, sheet by sheet, and the three fractions.

    Args:
        steps: (3 · `LENGTH`,) float64, scratch.
    """
    matrix, offset, _, _ = patch_map
    step_along(matrix, k0, steps)
    plane = np.float64(shape[PLANE])
    line = np.float64(shape[LINE])
    origin = np.float64(shape[ORIGIN])
    n = np.uint64(0)  # unsigned: a signed index would be tested for its sign
    for i in range(i0, i1):
        for j in range(j0, j0 + LINES):
            bx = offset[0] + (matrix[0, 0] * i + matrix[0, 1] * j)
            by = offset[1] + (matrix[1, 0] * i + matrix[1, 1] * j)
            bz = offset[2] + (matrix[2, 0] * i + matrix[2, 1] * j)
            for k in range(np.uint64(LENGTH)):
                x = bx + steps[k]
                y = by + steps[np.uint64(LENGTH) + k]
                z = bz + steps[np.uint64(2 * LENGTH) + k]
                ix = np.floor(x)
                iy = np.floor(y)
                iz = np.floor(z)
                rest[n + k] = np.float32(x - ix)
                rest[np.uint64(FRACTIONS) + n + k] = np.float32(y - iy)
                rest[np.uint64(2 * FRACTIONS) + n + k] = np.float32(z - iz)
                index[n + k] = np.int32(ix * plane + (iy * line + (iz - origin)))
            n += np.uint64(LENGTH)


@shared
def next_tile(tile: Any, j0: Any, length: Any, matrix: Any, shape: Any) -> tuple[Any, Any, Any]:
    """First line and voxel of the tile that comes after one in rows of a length; and how far its voxels are in the source from
    those of this one, in elements, nearly."""
    ends = (tile + 1) * LENGTH >= length
    lines = LINES if ends else 0
    there = 0 if ends else start_of(tile + 1, length, LENGTH)
    step = there - start_of(tile, length, LENGTH)
    x = np.int64(np.floor(matrix[0, 1] * lines + matrix[0, 2] * step + 0.5))
    y = np.int64(np.floor(matrix[1, 1] * lines + matrix[1, 2] * step + 0.5))
    z = np.int64(np.floor(matrix[2, 1] * lines + matrix[2, 2] * step + 0.5))
    return j0 + lines, there, x * shape[PLANE] + y * shape[LINE] + z


@inlined
def fetch(source: Any, count: Any, shape: Any, index: Any, ahead: Any) -> None:
    """Ask for the neighbours of voxels that are ``ahead`` of those that ``index`` has."""
    line = np.intp(shape[LINE])
    plane = np.intp(shape[PLANE])
    for k in range(0, count, STRIDE_AHEAD):
        p = np.intp(index[k]) + ahead
        prefetch(source, p)
        prefetch(source, p + line)
        prefetch(source, p + plane)
        prefetch(source, p + plane + line)


@inlined
def expect_sheet(plane: Any, j0: Any, k0: Any) -> None:
    """Ask for the memory that a sheet is written to: its lines are too short for a CPU to foresee."""
    for j in range(LINES):
        prefetch_to_write(plane, np.intp((j0 + j) * plane.shape[1] + k0))


@inlined
def put_sheet(sheet: Any, plane: Any, j0: Any, k0: Any) -> None:
    """The voxels of a sheet into their places in a plane of the patch."""
    for j in range(LINES):
        line = plane[j0 + j, k0 : k0 + LENGTH]
        begin = np.uint64(j * LENGTH)
        for k in range(np.uint64(LENGTH)):
            line[k] = sheet[begin + k]
